"""What the operator for Kubernetes reads from its environment, besides how gateways are called."""

import re
from dataclasses import dataclass

from kafscale.service.settings import Parser, integer, seconds, setting, within


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
    """Where it works, how often it looks, and how patient it is."""

    operator_namespace: str = setting(
        "KAFSCALE_OPERATOR_NAMESPACE",
        default="",
        parse=Parser("a Kubernetes namespace", _parse_namespace),
        doc="Whose resources the operator looks after; those of others are not its business.",
        default_text="the kubeconfig's, else default",
    )
    operator_image: str = setting(
        "KAFSCALE_OPERATOR_IMAGE",
        default="",
        parse=Parser("an image, NAME:TAG or NAME@DIGEST", _parse_image),
        doc="Which image the services of clusters that it makes have, where their resource names none; the manifests "
        "give it the operator's own.",
        default_text="the one that `k8s/base` names",
    )
    operator_lease_seconds: int = setting(
        "KAFSCALE_OPERATOR_LEASE_SECONDS",
        default=15,
        parse=integer(3, 3_600),
        doc="How long after its last sign of life the leading operator is taken for dead. It gives up by itself after "
        "two thirds of this.",
    )
    operator_resync_seconds: float = setting(
        "KAFSCALE_OPERATOR_RESYNC_SECONDS",
        default=60.0,
        parse=within(seconds, 1.0, 86_400.0),
        doc="How often what is as it should be is compared again, so that changes by others are seen; spread by 10 %.",
    )
    operator_retry_max_seconds: float = setting(
        "KAFSCALE_OPERATOR_RETRY_MAX_SECONDS",
        default=60.0,
        parse=within(seconds, 1.0, 3_600.0),
        doc="The longest pause before a resource that could not be brought in line is tried again. The first is half a "
        "second; each is twice the one before.",
    )
    operator_workers: int = setting(
        "KAFSCALE_OPERATOR_WORKERS",
        default=4,
        parse=integer(1, 64),
        doc="Resources that are worked on at the same time. The others wait, each once.",
    )
    operator_timeout_ms: int = setting(
        "KAFSCALE_OPERATOR_TIMEOUT_MS",
        default=30_000,
        parse=integer(1_000, 600_000),
        doc="What the Kubernetes API server, or a gateway, may take for an answer.",
    )
