-- Use of language models, reported by a proxy in front of the provider.
CREATE TABLE token_usage (
    -- The id that the provider gave to the request: a report that is sent twice counts once.
    provider            text NOT NULL CHECK (length(provider) BETWEEN 1 AND 64),
    provider_request_id text NOT NULL CHECK (length(provider_request_id) BETWEEN 1 AND 128),
    at                  timestamptz NOT NULL DEFAULT now(),
    user_name           text NOT NULL REFERENCES users (name),
    model               text NOT NULL CHECK (length(model) BETWEEN 1 AND 128),
    input_tokens        bigint NOT NULL CHECK (input_tokens >= 0),
    output_tokens       bigint NOT NULL CHECK (output_tokens >= 0),
    PRIMARY KEY (provider, provider_request_id)
);

CREATE INDEX token_usage_by_user ON token_usage (user_name, at);

-- Connections of users to servers. Reserved for the gateway; not written yet.
CREATE TABLE connections (
    id              uuid PRIMARY KEY,
    server_uid      uuid NOT NULL,
    user_name       text NOT NULL,
    client_ip       inet,
    user_agent      text CHECK (length(user_agent) <= 256),
    connected_at    timestamptz NOT NULL DEFAULT now(),
    disconnected_at timestamptz
);

CREATE INDEX connections_by_server ON connections (server_uid, connected_at);
CREATE INDEX connections_by_user ON connections (user_name, connected_at);
