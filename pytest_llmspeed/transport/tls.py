"""How an https server is trusted and how it trusts us; why a connection could not be opened, in words."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

OTHER_HOST = frozenset({62, 64})
"""OpenSSL's codes for a certificate whose name, or IP address, is another."""
NOT_IN_TIME = frozenset({9, 10})
"""OpenSSL's codes for a certificate that is not valid yet, and for one that has expired."""
NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
CERTIFICATE_WANTED = "CERTIFICATE_REQUIRED"


@dataclass(frozen=True, slots=True)
class TLS:
    """The user's own settings for https.

    `ca_file` (or folder) is trusted in addition to the system's authorities, which SSL_CERT_FILE
    and SSL_CERT_DIR name; `verify=False` trusts everybody. `client_cert` and `client_key` are
    shown to a server that asks who we are; the key may be in the same file.
    """

    ca_file: str | None = None
    verify: bool = True
    client_cert: str | None = None
    client_key: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return the settings as OpenSSL takes them; raises ValueError naming a file that cannot be used."""
        context = ssl.create_default_context()
        if self.ca_file is not None:
            kind = "capath" if Path(self.ca_file).is_dir() else "cafile"
            with _using("ca_file", self.ca_file):
                context.load_verify_locations(**{kind: self.ca_file})
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self.client_cert is not None:
            with _using("client_cert", self.client_cert):
                context.load_cert_chain(self.client_cert, self.client_key, _no_password)
        elif self.client_key is not None:
            raise ValueError("client_key= needs its certificate: set client_cert= too")
        return context


def _no_password() -> str:
    """Answer OpenSSL, which would ask for the password of a key on the terminal."""
    raise ValueError("its key is encrypted: decrypt it into a separate file")


@contextmanager
def _using(option: str, path: str) -> Iterator[None]:
    """Name the option and its file in what is wrong with it."""
    try:
        yield
    except ssl.SSLError as error:
        reason = (error.reason or "no certificate in it").replace("_", " ").lower()
        raise ValueError(f"{option}={path!r}: not a usable PEM file ({reason})") from error
    except OSError as error:
        raise ValueError(f"{option}={path!r}: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"{option}={path!r}: {error}") from error


def why_not_connected(scheme: str, host: str, error: OSError) -> str:
    """Return the reason for which a connection could not be opened, with the fix where there is one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _why_not_trusted(error)
    if isinstance(error, ssl.SSLError):
        return _why_no_tls(error.reason or str(error))
    if isinstance(error, socket.gaierror):
        return f"the host {host!r} is not known ({error.strerror})"
    if isinstance(error, ConnectionResetError | BrokenPipeError) and scheme == "https":
        return "it closed the connection during the TLS handshake"
    return error.strerror or str(error) or type(error).__name__


def _why_no_tls(reason: str) -> str:
    if CERTIFICATE_WANTED in reason:
        return wants_a_certificate()
    if any(word in reason for word in NOT_TLS):
        return "it does not speak TLS: is its address http://?"
    return f"TLS failed with {reason.replace('_', ' ').lower()}"


def wants_a_certificate() -> str:
    """Return the sentence on a server that wants to know who we are."""
    return "the server requires a client certificate: set client_cert= and client_key="


def _why_not_trusted(error: ssl.SSLCertVerificationError) -> str:
    said = error.verify_message
    if error.verify_code in OTHER_HOST:
        return (
            f"its certificate is for another host ({said}): use the name in the certificate, "
            "or turn the check off with verify=False"
        )
    if error.verify_code in NOT_IN_TIME:
        return f"its {said}: renew it, or turn the check off with verify=False"
    return (
        f"its certificate is not trusted ({said}): name the certificate of its authority with ca_file= "
        "or the environment variable SSL_CERT_FILE, or turn the check off with verify=False"
    )
