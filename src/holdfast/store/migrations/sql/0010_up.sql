-- 0010: Accounts: users, their sessions and API keys, failed logins.

CREATE TYPE account_role AS ENUM ('user', 'admin');

CREATE TABLE users (
    id                   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    password_changed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_login_at        timestamptz,
    disabled_at          timestamptz,
    version              integer NOT NULL DEFAULT 1,
    role                 account_role NOT NULL DEFAULT 'user',
    name                 varchar(64) COLLATE "C" NOT NULL,
    password_hash        text NOT NULL,

    CONSTRAINT user_name_sane CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._@-]*$' AND name !~ '^[0-9]*$'),
    CONSTRAINT user_password_hashed CHECK (starts_with(password_hash, '$argon2id$'))
);
CREATE UNIQUE INDEX users_name ON users (lower(name));
COMMENT ON TABLE users IS 'People and programs that may come in. Names differ by more than case.';
COMMENT ON COLUMN users.version IS 'Goes up when somebody changes the account; a login changes nothing.';
COMMENT ON COLUMN users.password_hash IS 'Argon2id with its parameters and salt.';

CREATE TABLE sessions (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id       bigint NOT NULL REFERENCES users ON DELETE CASCADE,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at    timestamptz NOT NULL,
    last_used_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_at    timestamptz,
    token_hash    bytea NOT NULL UNIQUE,
    address       varchar(64) NOT NULL,
    origin        varchar(64) NOT NULL,
    user_agent    varchar(255) NOT NULL,

    CONSTRAINT session_token_hashed CHECK (octet_length(token_hash) = 32)
) WITH (fillfactor = 80);
CREATE INDEX sessions_user ON sessions (user_id, id);
CREATE INDEX sessions_origin ON sessions (user_id, origin);
CREATE INDEX sessions_ended ON sessions (LEAST(expires_at, revoked_at));
COMMENT ON TABLE sessions IS 'Logins. Each has a token that only the client knows.';
COMMENT ON COLUMN sessions.token_hash IS 'SHA-256 of the token.';
COMMENT ON COLUMN sessions.last_used_at IS 'Written once a minute at the most.';
COMMENT ON COLUMN sessions.origin IS 'The address as failed logins are counted by it: of IPv6 the network of 64 bits.';

CREATE TABLE api_keys (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id       bigint NOT NULL REFERENCES users ON DELETE CASCADE,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at    timestamptz,
    last_used_at  timestamptz,
    revoked_at    timestamptz,
    version       integer NOT NULL DEFAULT 1,
    token_hash    bytea NOT NULL UNIQUE,
    name          varchar(64) NOT NULL,
    prefix        varchar(12) NOT NULL,
    scopes        text[] NOT NULL,

    CONSTRAINT api_key_token_hashed CHECK (octet_length(token_hash) = 32),
    CONSTRAINT api_key_name_sane CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9 ._@-]*$'),
    CONSTRAINT api_key_scopes_known CHECK (cardinality(scopes) > 0
        AND scopes <@ ARRAY['read', 'metrics', 'crawl', 'domains', 'proxies', 'operate', 'accounts'])
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX api_keys_name ON api_keys (user_id, name) WHERE revoked_at IS NULL;
CREATE INDEX api_keys_user ON api_keys (user_id, id);
COMMENT ON TABLE api_keys IS 'Keys of programs. Each narrows what its owner may do.';
COMMENT ON COLUMN api_keys.token_hash IS 'SHA-256 of the token.';
COMMENT ON COLUMN api_keys.prefix IS 'The beginning of the token, by which people know it again.';
COMMENT ON COLUMN api_keys.expires_at IS 'Null: never.';

-- An attempt has its row before its password is looked at; one that succeeds is taken out again.
CREATE TABLE login_failures (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    pending       boolean NOT NULL DEFAULT true,
    told_account  boolean NOT NULL DEFAULT false,
    told_origin   boolean NOT NULL DEFAULT false,
    account       bytea,
    origin        varchar(64) NOT NULL,

    CONSTRAINT login_account_hashed CHECK (octet_length(account) = 32)
);
CREATE INDEX login_failures_account ON login_failures (account, at) WHERE account IS NOT NULL;
CREATE INDEX login_failures_origin ON login_failures (origin, at);
CREATE INDEX login_failures_at ON login_failures (at);
CREATE INDEX login_failures_told ON login_failures (at) WHERE told_account OR told_origin;
COMMENT ON TABLE login_failures IS 'Failed logins that still count, and attempts that are being looked at.';
COMMENT ON COLUMN login_failures.pending IS 'Nobody has said yet what came of it. It counts as a failure meanwhile, and for good if whoever looked at it died.';
COMMENT ON COLUMN login_failures.account IS 'SHA-256 of the name that was given, in small letters, whether there is such a user or not. Null: a success has cleared it.';
COMMENT ON COLUMN login_failures.told_account IS 'With this one the limit of the account began, and the audit log says so.';
COMMENT ON COLUMN login_failures.told_origin IS 'Likewise the limit of the address.';
