-- The number of pending requests of a user is limited.
CREATE INDEX requests_pending_by_actor ON requests (actor) WHERE state = 'Pending';
-- No query uses it.
DROP INDEX requests_pending;
