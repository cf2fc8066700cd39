-- Keys of earlier users, changes of users, teams and flavors with kubectl, and removal of old rows without reading the
-- others.

-- A key belongs to one user, not to a name: it is revoked when another user gets the name. The users are distinguished by the
-- uid of the DevServerUser. The worker, which observes users, has no right to revoke keys.
CREATE FUNCTION revoke_keys_of_earlier_user() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    WITH key AS (
        UPDATE api_keys SET revoked_at = now() WHERE user_name = NEW.name AND revoked_at IS NULL RETURNING id
    )
    INSERT INTO audit_log (actor, actor_kind, user_name, action, object_kind, object_name, result, details)
    SELECT session_user, 'System', NEW.name, 'key.revoke', 'ApiKey', id, 'Succeeded', '{"reason": "UserReplaced"}' FROM key;
    RETURN NULL;
END
$$;

CREATE TRIGGER user_replaced AFTER UPDATE OF uid ON users
    FOR EACH ROW WHEN (OLD.uid IS DISTINCT FROM NEW.uid AND OLD.uid IS NOT NULL)
    EXECUTE FUNCTION revoke_keys_of_earlier_user();

-- The last observed specs of users, teams and flavors, by which changes of them are recorded in the audit log.
CREATE TABLE cluster_objects (
    kind        text NOT NULL CHECK (kind IN ('DevServerUser', 'Team', 'DevServerFlavor')),
    name        text NOT NULL,
    uid         uuid NOT NULL,
    -- All of its changes up to this one have an entry in the audit log.
    generation  bigint NOT NULL,
    spec        jsonb NOT NULL,
    deleted_at  timestamptz,
    observed_at timestamptz NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE INDEX requests_with_idempotency_key ON requests (created_at) WHERE idempotency_key IS NOT NULL;
CREATE INDEX devservers_deleted ON devservers (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX disks_deleted ON disks (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX disk_operations_deleted ON disk_operations (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX token_usage_by_time ON token_usage (at);
CREATE INDEX connections_by_time ON connections (connected_at);

-- While one of these functions waits for a lock on the audit log, nothing can be recorded.
ALTER FUNCTION create_audit_partitions() SET lock_timeout = '2s';

-- Also empties the default partition, which has the entries of months for which no worker created a partition in time. It
-- is emptied when the newest of them is old enough.
CREATE OR REPLACE FUNCTION drop_audit_partitions(retention_days int) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET timezone = 'UTC' SET lock_timeout = '2s' AS $$
DECLARE
    partition text;
    month     timestamptz;
    oldest    timestamptz := now() - make_interval(days => retention_days);
    dropped   int := 0;
BEGIN
    IF retention_days < 30 THEN
        RAISE EXCEPTION 'audit entries are kept for at least 30 days';
    END IF;
    FOR partition IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'audit_log'::regclass ORDER BY c.relname
    LOOP
        IF partition = 'audit_log_default' THEN
            CONTINUE WHEN (SELECT max(at) FROM audit_log_default) >= oldest IS NOT FALSE;
            DROP TABLE audit_log_default;
            CREATE TABLE audit_log_default PARTITION OF audit_log DEFAULT;
            CREATE TRIGGER audit_log_is_not_truncated BEFORE TRUNCATE ON audit_log_default
                FOR EACH STATEMENT EXECUTE FUNCTION reject_audit_change();
        ELSE
            month := to_timestamp(right(partition, 7) || '+00', 'YYYY_MMTZH');
            CONTINUE WHEN month + interval '1 month' > oldest;
            EXECUTE format('DROP TABLE %I', partition);
        END IF;
        INSERT INTO audit_log (actor, actor_kind, action, object_kind, object_name, result)
        VALUES (session_user, 'System', 'audit.purge', 'AuditLog', partition, 'Succeeded');
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END
$$;
