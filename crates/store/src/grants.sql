-- Least privileges of the roles. Applied after every migration in one transaction, so that it is always complete: what is
-- not granted here was revoked.

REVOKE ALL ON SCHEMA public FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA public, pgmq FROM odc_api, odc_worker, odc_auditor;

GRANT USAGE ON SCHEMA public, pgmq TO odc_api, odc_worker, odc_auditor;
-- To compare the version of the schema with that of the executable.
GRANT SELECT ON _sqlx_migrations TO odc_api, odc_worker, odc_auditor;

-- The API reads, accepts requests and manages keys. It cannot read or remove messages, or change what it recorded.
GRANT SELECT, INSERT ON users, api_keys, requests, audit_log, token_usage TO odc_api;
GRANT UPDATE (last_used_at, revoked_at) ON api_keys TO odc_api;
GRANT UPDATE (repeated_at) ON requests TO odc_api;
GRANT SELECT ON devservers, devserver_timeline, usage_intervals, disks, disk_operations, flavors, cluster_objects, connections
    TO odc_api;
GRANT USAGE ON SEQUENCE audit_log_id_seq TO odc_api;
-- `pgmq.send` returns the id of the message.
GRANT INSERT, SELECT (msg_id) ON pgmq.q_gpu_reservations, pgmq.q_disk_operations, pgmq.q_admin_operations TO odc_api;

-- The worker consumes messages, finishes requests and writes the projection. It cannot create requests or keys, or see
-- the hashes of keys.
GRANT SELECT ON requests TO odc_worker;
GRANT UPDATE (state, reason, message, status_code, finished_at, idempotency_key, payload) ON requests TO odc_worker;
GRANT DELETE ON requests TO odc_worker;
GRANT SELECT, INSERT ON audit_log TO odc_worker;
GRANT USAGE ON SEQUENCE audit_log_id_seq TO odc_worker;
GRANT SELECT, INSERT, UPDATE ON users, flavors, cluster_objects TO odc_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON devservers, devserver_timeline, usage_intervals, disks, disk_operations TO odc_worker;
GRANT SELECT, UPDATE, DELETE ON pgmq.q_gpu_reservations, pgmq.q_disk_operations, pgmq.q_admin_operations TO odc_worker;
GRANT SELECT, INSERT, DELETE ON pgmq.a_gpu_reservations, pgmq.a_disk_operations, pgmq.a_admin_operations TO odc_worker;
-- Removal of old rows.
GRANT SELECT (id, expires_at, revoked_at), DELETE ON api_keys TO odc_worker;
GRANT SELECT (provider, provider_request_id, at), DELETE ON token_usage TO odc_worker;
GRANT SELECT (id, connected_at), DELETE ON connections TO odc_worker;
GRANT EXECUTE ON FUNCTION create_audit_partitions(), drop_audit_partitions(int) TO odc_worker;

-- Auditors read everything but the hashes of keys.
GRANT SELECT ON users, requests, audit_log, devservers, devserver_timeline, usage_intervals, disks, disk_operations,
    flavors, cluster_objects, token_usage, connections TO odc_auditor;
GRANT SELECT (id, user_name, description, scopes, created_at, created_by, expires_at, last_used_at, revoked_at)
    ON api_keys TO odc_auditor;
GRANT SELECT ON pgmq.q_gpu_reservations, pgmq.q_disk_operations, pgmq.q_admin_operations,
    pgmq.a_gpu_reservations, pgmq.a_disk_operations, pgmq.a_admin_operations TO odc_auditor;
