# The bucket of a cluster with the namespace "production", and a role with access to it. Lifecycle rules for topics are
# optional, because KafScale enforces retention itself (docs/guides/kubernetes.md).

variable "bucket" {
  type    = string
  default = "kafscale-data"
}

variable "oidc_provider_arn" {
  description = "The ARN of the OIDC provider of the Kubernetes cluster, whose service accounts assume the role."
  type        = string
}

variable "oidc_provider" {
  description = "The address of the same provider, without https://."
  type        = string
}

resource "aws_s3_bucket" "kafscale_data" {
  bucket = var.bucket
}

resource "aws_s3_bucket_public_access_block" "kafscale_data" {
  bucket                  = aws_s3_bucket.kafscale_data.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

# One rule per topic. No prefix may be the start of another, or be "production/", because the shortest expiry that
# matches an object wins, and objects whose keys begin with "production/~" must not expire.
resource "aws_s3_bucket_lifecycle_configuration" "kafscale" {
  bucket = aws_s3_bucket.kafscale_data.id

  rule {
    id     = "logs-1d"
    status = "Enabled"
    filter {
      prefix = "production/logs/"
    }
    expiration {
      days = 1
    }
  }

  rule {
    id     = "events-30d"
    status = "Enabled"
    filter {
      prefix = "production/events/"
    }
    expiration {
      days = 30
    }
  }

  rule {
    id     = "orders-7d"
    status = "Enabled"
    filter {
      prefix = "production/orders/"
    }
    expiration {
      days = 7
    }
  }
}

resource "aws_iam_role" "kafscale" {
  name = "kafscale"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRoleWithWebIdentity"
      Principal = { Federated = var.oidc_provider_arn }
      Condition = {
        StringEquals = {
          "${var.oidc_provider}:aud" = "sts.amazonaws.com"
          "${var.oidc_provider}:sub" = [
            "system:serviceaccount:kafscale:kafscale-storage",
            "system:serviceaccount:kafscale:kafscale-indexer",
            "system:serviceaccount:kafscale:kafscale-etcd-snapshots",
          ]
        }
      }
    }]
  })
}

resource "aws_iam_role_policy" "kafscale" {
  name = "bucket"
  role = aws_iam_role.kafscale.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect   = "Allow"
        Action   = ["s3:ListBucket", "s3:GetLifecycleConfiguration"]
        Resource = aws_s3_bucket.kafscale_data.arn
      },
      {
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]
        Resource = "${aws_s3_bucket.kafscale_data.arn}/production/*"
      },
    ]
  })
}
