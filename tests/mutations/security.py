"""Authentication, ACLs and what calls over gRPC need."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_ACCESS = "tests/contract/rpc/test_access.py::"
_ACLS = "tests/unit/security/test_acls.py::"
_AUTHORIZATION = "tests/unit/gateway/test_authorization.py::"
_CATALOG = "tests/unit/metadata/test_acls.py::"
_SCRAM = "tests/unit/security/test_scram.py::"

MUTATIONS = (
    Mutation(
        "decisions of a connection are made again when the ACLs have changed",
        Change(
            "services.gateway.access.authorization",
            "Authorization._decide",
            "catalog.current is not self._acls or",
            "self._acls is None or",
        ),
        _AUTHORIZATION + "test_decisions_of_an_open_connection_follow_the_acls",
    ),
    Mutation(
        "a denial wins over what is allowed",
        Change(
            "kafscale.security.acls",
            "AclSet.decide",
            "if acl.permission is Permission.DENY:",
            "if acl.permission is Permission.DENY and allowing is None:",
        ),
        _ACLS + "test_decisions",
    ),
    Mutation(
        "a prefix is about longer names",
        Change("kafscale.security.acls", "AclSet._about", "resource.name[:length]", "resource.name"),
        _ACLS + "test_decisions",
    ),
    Mutation(
        "an ACL is for one host",
        Change("kafscale.security.acls", "_is_for", "acl.host in (host, ANY_HOST)", "bool(acl.host)"),
        _AUTHORIZATION + "test_decisions_of_an_open_connection_follow_the_acls",
    ),
    Mutation(
        "a deleted ACL is forgotten",
        Change(
            "kafscale.metadata.acls",
            "AclCatalog._show",
            "self.current.changed(after - before, before - after)",
            "self.current.changed(after - before, ())",
        ),
        _CATALOG + "test_others_follow",
    ),
    Mutation(
        "an ACL that this release does not know is not left out",
        Change("kafscale.metadata.acls", "read", "if stored.format != _FORMAT:", "if False:"),
        _CATALOG + "test_an_acl_of_a_later_release_is_not_ignored",
    ),
    Mutation(
        "a caller needs the operation on every resource that it names",
        Change("kafscale.rpc.access", "CallGuard.check", "if all(each.decision", "if any(each.decision"),
        _ACCESS + "test_a_log_is_not_read_by_the_id_of_another_topic",
    ),
    Mutation(
        "a caller needs everything that is asked besides",
        Change("kafscale.rpc.access", "CallGuard._decide", "for other in need.also:", "for other in ():"),
        _ACCESS + "test_offsets_are_reset_only_in_topics_that_the_caller_may_read",
    ),
    Mutation(
        "an epoch without records is committed only by who may write the sink",
        Change(
            "services.storage.needs",
            "needs",
            "(Need(WRITE_TRANSACTIONAL_ID, _sink, also=(Need(WRITE_TOPIC, committed, optional=True),)),)",
            "(Need(WRITE_TOPIC, committed, optional=True),)",
        ),
        _ACCESS + "test_a_sink_is_written_only_by_who_may_write_its_transactional_id",
    ),
    Mutation(
        "methods that are not in the table are for services",
        Change(
            "kafscale.rpc.access",
            "CallGuard.check",
            "needs = self._needs.get(method, OF_SERVICES)",
            "needs = self._needs.get(method, OF_SERVICES)\n        if method not in self._needs:\n            return",
        ),
        _ACCESS + "test_a_certificate_says_who_calls",
    ),
    Mutation(
        "a wrong token is refused",
        Change(
            "kafscale.rpc.access",
            "CallGuard.check",
            "if self._token and hmac.compare_digest(caller.token.encode(), self._token):",
            "if caller.token:",
        ),
        _ACCESS + "test_a_token_that_may_do_everything",
    ),
    Mutation(
        "a token of the issuer decides over the certificate",
        Change(
            "kafscale.rpc.access",
            "CallGuard._principal",
            "if caller.token:",
            "if caller.token and not caller.certificate:",
        ),
        _ACCESS + "test_a_token_of_the_issuer_says_who_calls_whatever_the_certificate",
    ),
    Mutation(
        "a client of SCRAM refuses a server that does not know the credential",
        Change(
            "kafscale.security.scram_client",
            "ScramClient.finish",
            'if not self._signature or not hmac.compare_digest(_decoded(found["signature"]), self._signature):',
            "if False:",
        ),
        "tests/unit/security/test_scram_client.py::test_a_server_that_does_not_know_the_credential_is_refused",
    ),
    Mutation(
        "the nonce of the final message is compared",
        Change(
            "kafscale.security.scram",
            "ScramServer._respond_final",
            'if not hmac.compare_digest(found["nonce"], self._nonce.encode()):',
            "if False:",
        ),
        _SCRAM + "test_a_final_message_that_proves_nothing_is_refused",
    ),
)
