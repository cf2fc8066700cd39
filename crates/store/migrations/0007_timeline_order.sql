-- Transitions have a resolution of seconds, and a server can start within one.
ALTER TABLE devserver_timeline ADD COLUMN position bigint GENERATED ALWAYS AS IDENTITY;
