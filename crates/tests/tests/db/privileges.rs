//! What each role may do, from the catalog of the database.

use odc_tests::{DatabaseRole, with_migrated_database};

use crate::fixture::{administrator, count, value};

/// The privileges of the roles: a table, then for each role SELECT, INSERT, UPDATE, DELETE and TRUNCATE as `r`, `a`, `w`,
/// `d` and `t`. A privilege for some columns only names them. A table without a line may not be used by any of the roles.
const EXPECTED: &str = "\
_sqlx_migrations odc_api=r odc_auditor=r odc_worker=r
api_keys odc_api=raw(last_used_at,revoked_at) odc_auditor=r(id,user_name,description,scopes,created_at,created_by,expires_at,last_used_at,revoked_at) odc_worker=r(id,expires_at,revoked_at)d
audit_log odc_api=ra odc_auditor=r odc_worker=ra
cluster_objects odc_api=r odc_auditor=r odc_worker=raw
connections odc_api=r odc_auditor=r odc_worker=r(id,connected_at)d
devserver_timeline odc_api=r odc_auditor=r odc_worker=rawd
devservers odc_api=r odc_auditor=r odc_worker=rawd
disk_operations odc_api=r odc_auditor=r odc_worker=rawd
disks odc_api=r odc_auditor=r odc_worker=rawd
flavors odc_api=r odc_auditor=r odc_worker=raw
pgmq.a_admin_operations odc_auditor=r odc_worker=rad
pgmq.a_disk_operations odc_auditor=r odc_worker=rad
pgmq.a_gpu_reservations odc_auditor=r odc_worker=rad
pgmq.q_admin_operations odc_api=r(msg_id)a odc_auditor=r odc_worker=rwd
pgmq.q_disk_operations odc_api=r(msg_id)a odc_auditor=r odc_worker=rwd
pgmq.q_gpu_reservations odc_api=r(msg_id)a odc_auditor=r odc_worker=rwd
requests odc_api=raw(repeated_at) odc_auditor=r odc_worker=rw(payload,idempotency_key,state,reason,message,status_code,finished_at)d
token_usage odc_api=ra odc_auditor=r odc_worker=r(provider,provider_request_id,at)d
usage_intervals odc_api=r odc_auditor=r odc_worker=rawd
users odc_api=ra odc_auditor=r odc_worker=raw";

/// Lists the privileges of all tables, views and partitions of all schemas of ODC, including those granted to everyone.
const ACTUAL: &str = "
    WITH privilege AS (
        SELECT c.oid::regclass::text AS relation, role, verb,
            CASE
                WHEN has_table_privilege(role, c.oid, verb.name) THEN verb.letter
                WHEN verb.has_columns AND has_any_column_privilege(role, c.oid, verb.name) THEN
                    verb.letter || '(' || (SELECT string_agg(attname, ',' ORDER BY attnum) FROM pg_attribute
                        WHERE attrelid = c.oid AND attnum > 0 AND has_column_privilege(role, c.oid, attnum, verb.name)) || ')'
            END AS text
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace,
            unnest(ARRAY['odc_api', 'odc_auditor', 'odc_worker']) role,
            (VALUES (1, 'SELECT', 'r', true), (2, 'INSERT', 'a', true), (3, 'UPDATE', 'w', true), (4, 'DELETE', 'd', false),
                (5, 'TRUNCATE', 't', false)) AS verb(position, name, letter, has_columns)
        WHERE n.nspname IN ('public', 'pgmq') AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    ), role_text AS (
        SELECT relation, role, role || '=' || string_agg(text, '' ORDER BY (verb).position) AS text
        FROM privilege WHERE text IS NOT NULL GROUP BY relation, role
    )
    SELECT string_agg(line, E'\\n' ORDER BY line COLLATE \"C\") FROM (
        SELECT relation || ' ' || string_agg(text, ' ' ORDER BY role) AS line FROM role_text GROUP BY relation
    ) lines";

#[tokio::test]
async fn roles_have_exactly_the_listed_privileges() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let sql = &mut administrator(database).await?;
        let actual = value(sql, ACTUAL).await?;
        let expected: Vec<&str> = EXPECTED.lines().collect();
        assert_eq!(actual.lines().collect::<Vec<_>>(), expected, "\n{actual}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn roles_cannot_create_objects_or_call_other_functions() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let sql = &mut administrator(database).await?;
        for role in DatabaseRole::ALL.into_iter().filter(|role| *role != DatabaseRole::Migrator) {
            let role = role.as_str();
            for schema in ["public", "pgmq"] {
                let create =
                    value(sql, &format!("SELECT has_schema_privilege('{role}', '{schema}', 'CREATE')")).await?;
                assert_eq!(create, "false", "{role} {schema}");
            }
            let functions = format!(
                "SELECT string_agg(p.proname, ' ' ORDER BY p.proname) FROM pg_proc p
                 WHERE p.pronamespace = 'public'::regnamespace AND has_function_privilege('{role}', p.oid, 'EXECUTE')"
            );
            let expected = if role == "odc_worker" { "create_audit_partitions drop_audit_partitions" } else { "" };
            assert_eq!(value(sql, &functions).await?, expected, "{role}");
            let memberships = format!("pg_auth_members WHERE member = '{role}'::regrole");
            assert_eq!(count(sql, &memberships).await?, 0, "{role} is a member of another role");
        }
        // Functions with the rights of their owner must not find objects of other schemas first.
        let unsafe_functions =
            "pg_proc WHERE prosecdef AND pronamespace IN ('public'::regnamespace, 'pgmq'::regnamespace)
            AND NOT COALESCE(proconfig, '{}') @> ARRAY['search_path=public, pg_temp']";
        assert_eq!(count(sql, unsafe_functions).await?, 0);
        Ok(())
    })
    .await
}
