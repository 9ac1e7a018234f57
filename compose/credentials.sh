#!/bin/sh
# Makes what compose.secure.yaml needs, in volumes: certificates of six CAs, MinIO's password, and the secret of Spark's
# processes. What exists is kept. With RENEW=true, certificates are replaced.
#
# A CA is in /authorities, which no other container mounts. Each container gets its own files in /made/CONTAINER.
set -eu

made=0

# certificate CONTAINER OWNER CA OPTION...: makes CA.pem and CA.key for a container. OWNER is the uid of its processes.
certificate() {
    container=$1 owner=$2 authority=$3
    shift 3
    directory=/authorities/$authority name=kafscale-$container
    if [ ! -e "$directory/$name.pem" ]; then
        kafscale certificates create "$directory" --name "$name" "$@" >/dev/null
    elif [ "${RENEW:-}" = true ]; then
        kafscale certificates create "$directory" --name "$name" "$@" --renew >/dev/null
    fi
    give "$container" "$owner" "$directory/ca.pem" "$authority-ca.pem"
    give "$container" "$owner" "$directory/$name.pem" "$authority.pem"
    give "$container" "$owner" "$directory/$name.key" "$authority.key"
    made=$((made + 1))
}

# give CONTAINER OWNER FILE NAME: copies a file for a container, so that it is never seen in part.
give() {
    # Only its owner can read what a container already has.
    [ "/made/$1/$4" -nt "$3" ] && return
    cp "$3" "/made/$1/.$4"
    chmod 400 "/made/$1/.$4"
    chown "$2" "/made/$1/.$4"
    mv -f "/made/$1/.$4" "/made/$1/$4"
}

# secret FILE: makes a file with a random secret.
secret() {
    [ -e "$1" ] && return
    mkdir -p "$(dirname "$1")"
    head -c 24 /dev/urandom | base64 >"$1.new"
    mv "$1.new" "$1"
}

# config FILE: writes standard input to a file, unless that is what it has.
config() {
    cat >"$1.new"
    if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
}

for service in gateway storage indexer coordinator; do
    # Callers verify this name, because containers register their host names.
    certificate $service 10001 services --host kafscale.internal
    certificate $service 10001 http --host kafscale.internal
    certificate $service 10001 etcd --client
done
certificate cli 10001 services --client
certificate spark 10001 services --client
certificate console 10001 services --client
certificate console 10001 http --host kafscale.internal
certificate console 10001 console --host localhost --host 127.0.0.1 --host "$OUTSIDE_HOST"
certificate prometheus 65534 http --client
certificate etcd 0 etcd --host etcd --host 127.0.0.1
certificate minio 0 s3 --host minio --host 127.0.0.1
certificate gateway 10001 kafka --host gateway --host localhost --host "$OUTSIDE_HOST" \
    --host "$PROJECT-gateway-1" --host "$PROJECT-gateway-2" --host "$PROJECT-gateway-3" --host "$PROJECT-gateway-4"

# The names and the directory that MinIO expects. MinIO notices that a file is replaced only if it is a symbolic link.
ln -sf s3.pem /made/minio/public.crt
ln -sf s3.key /made/minio/private.key
mkdir -p /made/minio/CAs
umask 077
secret /authorities/s3/password
give minio 0 /authorities/s3/password s3-password
config /authorities/s3/credentials <<END
[default]
aws_access_key_id = kafscale
aws_secret_access_key = $(cat /authorities/s3/password)
END
for client in storage indexer bucket; do
    give $client 10001 /authorities/s3/ca.pem s3-ca.pem
    give $client 10001 /authorities/s3/credentials s3-credentials
done

secret /authorities/spark/secret
config /authorities/spark/defaults <<END
spark.authenticate true
spark.authenticate.secret $(cat /authorities/spark/secret)
spark.network.crypto.enabled true
END
give spark 10001 /authorities/spark/defaults spark-defaults.conf
echo "$made certificates exist"
