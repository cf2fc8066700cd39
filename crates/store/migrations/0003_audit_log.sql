-- Append-only record of changes and denials, partitioned by month so that old entries are removed without a DELETE.

CREATE SEQUENCE audit_log_id_seq AS bigint;

CREATE TABLE audit_log (
    id          bigint NOT NULL DEFAULT nextval('audit_log_id_seq'),
    at          timestamptz NOT NULL DEFAULT now(),
    -- Who: the name of a user, a Kubernetes user name, or the field manager of a change that was made with kubectl.
    actor       text NOT NULL CHECK (length(actor) <= 253),
    actor_kind  text NOT NULL CHECK (actor_kind IN ('ApiKey', 'Kubernetes', 'FieldManager', 'System')),
    key_id      text,
    -- What: the user whose object is affected, the action and the object.
    user_name   text,
    action      text NOT NULL CHECK (length(action) <= 64),
    object_kind text NOT NULL CHECK (length(object_kind) <= 64),
    object_name text NOT NULL CHECK (length(object_name) <= 253),
    object_uid  uuid,
    result      text NOT NULL CHECK (result IN ('Accepted', 'Succeeded', 'Rejected', 'Failed', 'Denied', 'Observed')),
    -- How: the request, its origin, and hashes of the object before and after.
    request_id  uuid,
    client_ip   inet,
    user_agent  text CHECK (length(user_agent) <= 256),
    before_hash bytea,
    after_hash  bytea,
    details     jsonb NOT NULL DEFAULT '{}' CHECK (octet_length(details::text) <= 16384),
    PRIMARY KEY (at, id)
) PARTITION BY RANGE (at);

CREATE INDEX audit_log_by_user ON audit_log (user_name, at DESC, id DESC);
CREATE INDEX audit_log_by_actor ON audit_log (actor, at DESC, id DESC);
CREATE INDEX audit_log_by_object ON audit_log (object_uid, at) WHERE object_uid IS NOT NULL;
CREATE INDEX audit_log_by_request ON audit_log (request_id) WHERE request_id IS NOT NULL;

-- Entries are never lost because a partition is missing.
CREATE TABLE audit_log_default PARTITION OF audit_log DEFAULT;

CREATE FUNCTION reject_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit_log is append-only' USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER audit_log_is_append_only BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION reject_audit_change();
-- Row triggers are inherited by partitions, statement triggers are not.
CREATE TRIGGER audit_log_is_not_truncated BEFORE TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION reject_audit_change();
CREATE TRIGGER audit_log_is_not_truncated BEFORE TRUNCATE ON audit_log_default
    FOR EACH STATEMENT EXECUTE FUNCTION reject_audit_change();

-- Creates the partitions of this month and the next, if the default partition has no entries of them. The worker calls
-- it; it has no right to change the schema. In UTC, because months have other limits in the time zone of a session.
CREATE FUNCTION create_audit_partitions() RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    month     timestamptz;
    partition text;
    created   int := 0;
BEGIN
    FOREACH month IN ARRAY ARRAY[date_trunc('month', now(), 'UTC'), date_trunc('month', now(), 'UTC') + interval '1 month'] LOOP
        partition := 'audit_log_' || to_char(month AT TIME ZONE 'UTC', 'YYYY_MM');
        CONTINUE WHEN to_regclass(partition) IS NOT NULL;
        CONTINUE WHEN EXISTS (SELECT FROM audit_log_default WHERE at >= month AND at < month + interval '1 month');
        EXECUTE format('CREATE TABLE %I PARTITION OF audit_log FOR VALUES FROM (%L) TO (%L)',
            partition, month, month + interval '1 month');
        EXECUTE format('CREATE TRIGGER audit_log_is_not_truncated BEFORE TRUNCATE ON %I
            FOR EACH STATEMENT EXECUTE FUNCTION reject_audit_change()', partition);
        created := created + 1;
    END LOOP;
    RETURN created;
END
$$;

-- Removes the partitions that ended more than this number of days ago, at least 30, and records it.
CREATE FUNCTION drop_audit_partitions(retention_days int) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    partition text;
    month     timestamptz;
    dropped   int := 0;
BEGIN
    IF retention_days < 30 THEN
        RAISE EXCEPTION 'audit entries are kept for at least 30 days';
    END IF;
    FOR partition IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'audit_log'::regclass AND c.relname ~ '^audit_log_\d{4}_\d{2}$' ORDER BY c.relname
    LOOP
        month := to_timestamp(right(partition, 7) || '+00', 'YYYY_MMTZH');
        CONTINUE WHEN month + interval '1 month' > now() - make_interval(days => retention_days);
        EXECUTE format('DROP TABLE %I', partition);
        INSERT INTO audit_log (actor, actor_kind, action, object_kind, object_name, result)
        VALUES (session_user, 'System', 'audit.purge', 'AuditLog', partition, 'Succeeded');
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END
$$;

SELECT create_audit_partitions();
