"""Names in certificates."""

from cryptography import x509


def distinguished_name(certificate: bytes) -> str:
    """Return the name of a certificate's (DER) subject by RFC 4514, as ``CN=ann,OU=sales,C=DE``. Raises ValueError."""
    return x509.load_der_x509_certificate(certificate).subject.rfc4514_string()
