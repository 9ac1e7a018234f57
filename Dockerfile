# One image for all services; the command selects the service. `make image` builds it, and `docker compose up` if it is
# missing.
#
# To use a mirror, set --build-arg PIP_INDEX_URL=... for pip. Versions and hashes are always those of the lock file.
# BASE can be a Debian 12 image with your own mirror and certificates.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS python
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --home-dir /tmp --no-create-home kafscale

FROM python AS pip
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
# pip trusts the same certificates as the base image.
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/kafscale
WORKDIR /src

FROM pip AS build
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
COPY requirements.lock ./
RUN /opt/kafscale/bin/pip install --no-cache-dir --require-hashes --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY kafscale kafscale
COPY kafscale_tools kafscale_tools
COPY services services
# The operator deploys clusters from these manifests; services/operator/manifests is a link to them.
COPY k8s k8s
COPY spark spark
RUN /opt/kafscale/bin/pip install --no-cache-dir --no-index --no-deps --no-build-isolation .

FROM python AS kafscale
COPY --from=build /opt/kafscale /opt/kafscale
ENV PATH=/opt/kafscale/bin:$PATH \
    KAFSCALE_HTTP_ADDR=:9093
USER 10001:10001
WORKDIR /tmp
# `docker inspect` shows the output of /readyz. With TLS, the check presents the process's own certificate.
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-ISc", "import os, ssl; from http.client import HTTPConnection as H, HTTPSConnection as S; tls = os.environ.get('KAFSCALE_HTTP_TLS_CERT_FILE'); x = ssl._create_unverified_context(); tls and x.load_cert_chain(tls, os.environ['KAFSCALE_HTTP_TLS_KEY_FILE']); c = S('127.0.0.1', 9093, timeout=4, context=x) if tls else H('127.0.0.1', 9093, timeout=4); c.request('GET', '/readyz'); r = c.getresponse(); print(r.read().decode()); raise SystemExit(r.status != 200)"]
CMD ["kafscale", "--help"]

# The same with Java and Spark, for the profile `spark` in compose.yaml. KafScale is copied last, over Spark's packages
# in the same environment, so that changes to it do not rebuild the large layers.
FROM pip AS spark-packages
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
COPY requirements-spark.lock ./
RUN /opt/kafscale/bin/pip install --no-cache-dir --require-hashes --requirement requirements-spark.lock

FROM python AS spark
RUN apt-get update \
    && mkdir -p /usr/share/man/man1 \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=spark-packages /opt/kafscale /opt/kafscale
COPY --from=build /opt/kafscale /opt/kafscale
COPY spark/jobs /opt/kafscale/jobs
ENV PATH=/opt/kafscale/bin:$PATH \
    SPARK_HOME=/opt/kafscale/lib/python3.11/site-packages/pyspark \
    PYSPARK_PYTHON=/opt/kafscale/bin/python
USER 10001:10001
WORKDIR /tmp
CMD ["spark-submit", "--help"]

# The default target of `docker build`.
FROM kafscale
