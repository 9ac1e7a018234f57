"""Settings of the Kubernetes operator."""

import re
from dataclasses import dataclass

from kafscale.config.settings import Parser, integer, seconds, setting, within


def _parse_namespace(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", text):
        raise ValueError(text)
    return text


def _parse_image(text: str) -> str:
    if not re.fullmatch(r"[^ ]+(:[A-Za-z0-9_.-]+|@sha256:[0-9a-f]{64})", text):
        raise ValueError(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """The namespace, intervals and limits of the operator."""

    operator_namespace: str = setting(
        "KAFSCALE_OPERATOR_NAMESPACE",
        default="",
        parse=Parser("a Kubernetes namespace", _parse_namespace),
        doc="The namespace whose resources the operator manages. It ignores resources in other namespaces.",
        default_text="from the kubeconfig, else default",
    )
    operator_image: str = setting(
        "KAFSCALE_OPERATOR_IMAGE",
        default="",
        parse=Parser("an image, NAME:TAG or NAME@DIGEST", _parse_image),
        doc="The image for the services of clusters that the operator creates, if their resource names none. The "
        "manifests set it to the operator's own image.",
        default_text="the image in k8s/base",
    )
    operator_lease_seconds: int = setting(
        "KAFSCALE_OPERATOR_LEASE_SECONDS",
        default=15,
        parse=integer(3, 3_600),
        doc="The TTL of the leader's lease. A leading operator that does not renew it for this long is considered "
        "dead. It stops leading after two thirds of this time without a renewal.",
    )
    operator_resync_seconds: float = setting(
        "KAFSCALE_OPERATOR_RESYNC_SECONDS",
        default=60.0,
        parse=within(seconds, 1.0, 86_400.0),
        doc="How often resources that are in their desired state are compared again, so that changes by others are "
        "noticed. Each interval is randomized by 10 %.",
    )
    operator_retry_max_seconds: float = setting(
        "KAFSCALE_OPERATOR_RETRY_MAX_SECONDS",
        default=60.0,
        parse=within(seconds, 1.0, 3_600.0),
        doc="The maximum pause before a resource that could not be reconciled is tried again. The first pause is half "
        "a second, and each pause is twice the previous one.",
    )
    operator_workers: int = setting(
        "KAFSCALE_OPERATOR_WORKERS",
        default=4,
        parse=integer(1, 64),
        doc="The maximum number of resources that are reconciled at the same time. The others wait in a queue, each at "
        "most once.",
    )
    operator_timeout_ms: int = setting(
        "KAFSCALE_OPERATOR_TIMEOUT_MS",
        default=30_000,
        parse=integer(1_000, 600_000),
        doc="The timeout of a request to the Kubernetes API server or to a gateway.",
    )
