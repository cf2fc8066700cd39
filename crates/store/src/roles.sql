-- Roles of ODC, to be created once by an administrator of the database server. Give them passwords, or grant them to other
-- login roles. The owner of the database, or a role that odc_migrator is granted to, runs `odc migrate`.
DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['odc_migrator', 'odc_api', 'odc_worker', 'odc_auditor'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('CREATE ROLE %I NOINHERIT', role);
        END IF;
    END LOOP;
    -- The owner of a database may create objects in its schema `public` as an implicit member of pg_database_owner.
    ALTER ROLE odc_migrator INHERIT;
END
$$;
