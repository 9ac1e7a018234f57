# One image for every service: the command says which. `make image` builds it, `docker compose up` where it is missing.
#
# Behind a mirror: --build-arg PIP_INDEX_URL=..., which pip reads; versions and hashes stay those of the lock. BASE may name
# a Debian 12 with a mirror and certificates of one's own.
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
# pip trusts whom the base image trusts.
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
# What the operator makes clusters of; services/operator/manifests is a link to it.
COPY k8s k8s
COPY spark spark
RUN /opt/kafscale/bin/pip install --no-cache-dir --no-index --no-deps --no-build-isolation .

FROM python AS kafscale
COPY --from=build /opt/kafscale /opt/kafscale
ENV PATH=/opt/kafscale/bin:$PATH \
    KAFSCALE_HTTP_ADDR=:9093
USER 10001:10001
WORKDIR /tmp
# What /readyz says stands in `docker inspect`.
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-ISc", "from http.client import HTTPConnection as C; c = C('127.0.0.1', 9093, timeout=4); c.request('GET', '/readyz'); r = c.getresponse(); print(r.read().decode()); raise SystemExit(r.status != 200)"]
CMD ["kafscale", "--help"]

# The same with Java and Spark, for compose.yaml's profile `spark`. KafScale comes last, over Spark's packages in the same
# environment: what it changes makes none of the large layers anew.
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

# What `docker build` without a target is to make.
FROM kafscale
