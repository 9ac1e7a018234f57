"""Code that breaks rules of separate services: choice of a peer, credentials, and start."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_CERTIFICATES = "tests/unit/cli/test_certificates.py::"
_CREDENTIALS = "tests/unit/config/test_credentials.py::"
_HTTP_TLS = "tests/unit/process/test_http_tls.py::"
_LIST_OFFSETS = "tests/unit/storage/test_list_offsets.py::"
_NETWORK = "tests/unit/config/test_network.py::"
_POOL = "tests/unit/rpc/test_pool.py::"
_READ_PATH = "tests/unit/storage/test_read_path.py::"
_REWRITING = "tests/unit/indexer/test_rewriting.py::"
_RPC_TLS = "tests/contract/rpc/test_grpc_tls.py::"
_START = "tests/services/test_start.py::"

MUTATIONS = (
    Mutation(
        "a silent indexer leaves time for another one",
        Change("kafscale.rpc.pool", "IndexerPool.call", "remaining / min(len(candidates), 2)", "remaining"),
        _POOL + "test_a_hanging_indexer_uses_only_its_share_of_the_time",
    ),
    Mutation(
        "an indexer that failed is avoided for a while",
        Change("kafscale.rpc.pool", "IndexerPool._candidates", " and peer.avoided_until <= now", ""),
        _POOL + "test_a_call_fails_at_once_if_all_indexers_have_just_failed",
    ),
    Mutation(
        "calls go to the indexer with the fewest calls in flight",
        Change("kafscale.rpc.pool", "_least_busy", "(peer.in_flight, peer.last_called)", "(peer.last_called,)"),
        _POOL + "test_a_busy_indexer_gets_fewer_calls",
    ),
    Mutation(
        "an indexer that leaves finishes its current calls",
        Change(
            "kafscale.rpc.pool",
            "IndexerPool._close_unused",
            "if peer.gone and not peer.in_flight and",
            "if peer.gone and",
        ),
        _POOL + "test_a_removed_indexer_gets_no_calls_and_is_closed_after_its_last_one",
    ),
    Mutation(
        "a stream to an indexer counts as a call in flight",
        Change("kafscale.rpc.pool", "IndexerPool.stream", "with self._in_flight(peer):", "if peer:"),
        _POOL + "test_a_stream_is_opened_at_the_least_busy_indexer_and_counts_as_a_call",
    ),
    Mutation(
        "damage from before a segment was built gets no new checksum",
        Change(
            "services.indexer.rewriting.passes",
            "_read",
            "parse_segment(data, check_batches=True)",
            "parse_segment(data)",
        ),
        _REWRITING + "test_a_damaged_object_ends_the_rewrite_and_nothing_is_stored[inline]",
    ),
    Mutation(
        "a pass of compaction ends where its keys do not fit any more",
        Change("services.indexer.rewriting.passes", "_collect", "return end\n", "return rules.end\n"),
        _REWRITING + "test_a_pass_ends_where_the_keys_do_not_fit_in_memory[inline]",
    ),
    Mutation(
        "a resumed pass keeps its end",
        Change("services.indexer.rewriting.passes", "_collect", "if end is None or rules.resumed:", "if end is None:"),
        _REWRITING + "test_a_pass_of_which_too_few_keys_fit_in_memory_is_refused[True]",
    ),
    Mutation(
        "another object is not taken for what a rewrite stores",
        Change("services.indexer.rewriting.rewrites", "_Call._put", "if there is not None:", "if False:"),
        _REWRITING + "test_another_object_of_the_same_key_is_never_replaced[kfs]",
    ),
    Mutation(
        "what a rewrite stored is read back",
        Change(
            "services.indexer.rewriting.passes",
            "_Step._store",
            'parse_object(built.entry, read_back or b"", check_batches=True)',
            "pass",
        ),
        _REWRITING + "test_a_step_is_reported_only_if_its_objects_can_be_read_back",
    ),
    Mutation(
        "lookups by time need no indexer",
        Change("services.storage.reading.offsets", "_LookUp._locate", "return await self._search(segments)", "raise"),
        _LIST_OFFSETS + "test_a_timestamp_gives_the_first_record_at_or_after_it",
    ),
    Mutation(
        "a segment without its index is read without an indexer",
        Change(
            "services.storage.reading.reader",
            "Reader._rebuilt_index",
            "            parsed = await self.parsed(view, segment)\n",
            "            parsed = self\n            raise\n",
        ),
        _READ_PATH + "test_without_an_indexer_segments_with_bad_indexes_are_read_whole",
    ),
    Mutation(
        "a web identity token is sent to no other service",
        Change(
            "kafscale.objects.credentials",
            "_described",
            '_QUERY.sub("", f"{type(error).__name__}: {error}")',
            'f"{type(error).__name__}: {error}"',
        ),
        _CREDENTIALS + "test_a_refused_token_is_not_printed",
    ),
    Mutation(
        "expired credentials sign nothing",
        Change(
            "kafscale.objects.credentials",
            "RenewedCredentials.__call__",
            "if self._present is None or self._remaining() <= 0:",
            "if self._present is None:",
        ),
        _CREDENTIALS + "test_expired_credentials_sign_nothing_and_are_renewed_later",
    ),
    Mutation(
        "credentials are renewed before they expire",
        Change(
            "kafscale.objects.credentials",
            "RenewedCredentials._renew",
            "min(self._remaining() / 2, _RENEWED_BEFORE_END_SECONDS)",
            "0.0",
        ),
        _CREDENTIALS + "test_credentials_are_renewed_before_they_expire",
    ),
    Mutation(
        "a failing source of credentials is not replaced by another identity",
        Change(
            "kafscale.objects.credentials", "find_source", ' or environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):', ":"
        ),
        _CREDENTIALS + "test_a_failed_source_is_retried_and_no_other_is_used",
    ),
    Mutation(
        "no address for all interfaces is advertised",
        Change(
            "kafscale.config.network",
            "NetworkSettings.__post_init__",
            "if advertised is None and self.rpc_addr is not None and self.rpc_addr.anywhere:",
            "if False:",
        ),
        _NETWORK + "test_on_all_interfaces_an_advertised_address_must_be_set",
    ),
    Mutation(
        "only the owner of a key can read it",
        Change("kafscale_tools.cli.certificate_files", "_store", "0o600", "0o644"),
        _CERTIFICATES + "test_only_the_owner_can_read_keys",
    ),
    Mutation(
        "a certificate that exists is not replaced by accident",
        Change("kafscale_tools.cli.certificates", "create", "if former is not None and not renew:", "if False:"),
        _CERTIFICATES + "test_a_certificate_is_replaced_only_if_it_is_renewed",
    ),
    Mutation(
        "the HTTP port ends slow TLS handshakes",
        Change(
            "kafscale.process.http",
            "HttpServer._converse_by_tls",
            "self._silence(_HANDSHAKE_SECONDS)",
            "trio.CancelScope()",
        ),
        _HTTP_TLS + "test_a_handshake_is_bounded_in_time",
    ),
    Mutation(
        "the HTTP port verifies the certificates of clients",
        Change("kafscale.process.certificates", "server_context", "context.verify_mode = clients", "pass"),
        _HTTP_TLS + "test_with_a_ca_only_clients_that_it_knows_are_answered",
    ),
    Mutation(
        "connections of replaced certificates do not accumulate",
        Change("kafscale.rpc.client", "Channel._renew", "if len(self._former) > _MOST_FORMER:", "if False:"),
        _RPC_TLS + "test_connections_of_certificates_that_were_replaced_long_ago_are_closed",
        slow=True,
    ),
)
