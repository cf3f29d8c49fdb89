//! What belongs to another user of the database never runs with the rights of a client.

use quorlock::node::NodeErrorKind;
use quorlock_postgres::SCHEMA;
use tokio_postgres::Client;

use crate::support::{Server, node, server, sql};

/// A server with the user `mallory`, who wants to be a superuser. Returns a client of its administrator.
async fn with_mallory(server: &Server) -> Client {
    let client = server.client().await;
    let made = "CREATE USER mallory; GRANT CREATE ON DATABASE postgres TO mallory; CREATE SCHEMA m AUTHORIZATION mallory";
    client.batch_execute(made).await.unwrap();
    client
}

/// Runs statements as mallory.
async fn by_mallory(client: &Client, statements: &str) {
    let as_mallory = format!("SET ROLE mallory; {statements}; RESET ROLE");
    client.batch_execute(&as_mallory).await.unwrap_or_else(|error| panic!("{statements}: {error:?}"));
}

async fn is_superuser(client: &Client) -> bool {
    client.query_one("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'", &[]).await.unwrap().get(0)
}

/// What mallory wants to run with the rights of a superuser.
const DEED: &str = "IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN ALTER ROLE mallory SUPERUSER; END IF";

/// Asserts that a superuser's node refuses the schema because of this thing of mallory's, and runs nothing of it.
async fn refused(server: &Server, client: &Client, thing: &str) {
    for what in ["connect", "examine"] {
        let node = node(&server.url(""));
        let message = if what == "connect" {
            let error = node.ready().await.unwrap_err();
            assert_eq!(error.kind(), NodeErrorKind::Misconfigured, "{error:#}");
            error.to_string()
        } else {
            node.examine("doctor".into()).await.unwrap().failure.unwrap().error.to_string()
        };
        for word in [thing, "mallory", "DROP SCHEMA quorlock CASCADE", "docs/postgres.md"] {
            assert!(message.contains(word), "{what}: {message}");
        }
    }
    assert!(!is_superuser(client).await, "{thing} ran with the rights of a superuser");
}

#[tokio::test]
async fn a_schema_of_another_user_is_refused_and_none_of_it_runs() {
    let Some(server) = server() else { return };
    let client = with_mallory(&server).await;
    by_mallory(&client, SCHEMA).await;
    let squat = format!(
        "CREATE OR REPLACE FUNCTION rules.sweep(most int) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
         AS $$ BEGIN {DEED}; END $$; GRANT USAGE ON SCHEMA quorlock TO PUBLIC; GRANT ALL ON ALL TABLES IN SCHEMA quorlock TO PUBLIC"
    );
    by_mallory(&client, &sql(&squat)).await;
    refused(&server, &client, "the schema \"quorlock\" belongs to \"mallory\"").await;
    // A new owner of the schema alone does not make the rest of it trustworthy.
    client.batch_execute("ALTER SCHEMA quorlock OWNER TO postgres").await.unwrap();
    refused(&server, &client, "the function \"quorlock.").await;
    // Mallory itself may use what it has made, if it is what the script makes.
    client.batch_execute("ALTER SCHEMA quorlock OWNER TO mallory").await.unwrap();
    let mallory = || node(&server.url("").replace("postgres@", "mallory@"));
    let error = mallory().ready().await.unwrap_err();
    assert!(error.to_string().contains("were changed"), "{error:#}");
    by_mallory(&client, &format!("DROP SCHEMA quorlock CASCADE; {SCHEMA}")).await;
    mallory().ready().await.unwrap();
}

#[tokio::test]
async fn what_others_have_put_into_the_schema_or_attached_to_it_is_refused() {
    let Some(server) = server() else { return };
    let client = with_mallory(&server).await;
    node(&server.url("")).ready().await.unwrap();
    client
        .batch_execute(
            "GRANT ALL ON SCHEMA quorlock TO mallory; GRANT ALL ON ALL TABLES IN SCHEMA quorlock TO mallory",
        )
        .await
        .unwrap();
    let functions = format!(
        "CREATE FUNCTION m.t() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {DEED}; RETURN NEW; END $$;
         CREATE FUNCTION m.f() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN {DEED}; RETURN 0; END $$"
    );
    by_mallory(&client, &functions).await;
    // By whom, what, how to undo it, and what the error names.
    for (is_mallory, made, undone, thing) in [
        (
            true,
            "CREATE FUNCTION quorlock.sweep(most bigint) RETURNS void LANGUAGE plpgsql AS 'BEGIN RETURN; END'",
            "DROP FUNCTION quorlock.sweep(bigint)",
            "the function \"quorlock.sweep\"",
        ),
        (
            true,
            "CREATE TRIGGER t BEFORE INSERT OR UPDATE ON quorlock.meta FOR EACH ROW EXECUTE FUNCTION m.t()",
            "DROP TRIGGER t ON quorlock.meta",
            "the function \"m.t\"",
        ),
        (true, "CREATE VIEW quorlock.v AS SELECT m.f()", "DROP VIEW quorlock.v", "the table \"quorlock.v\""),
        (true, "CREATE TYPE quorlock.t AS (a int)", "DROP TYPE quorlock.t", "\"quorlock.t\""),
        (true, "CREATE TABLE m.k (k bytea REFERENCES quorlock.locks)", "DROP TABLE m.k", "the table \"m.k\""),
        // These need the owner's help.
        (
            false,
            "ALTER TABLE quorlock.locks ALTER told SET DEFAULT m.f()",
            "ALTER TABLE quorlock.locks ALTER told DROP DEFAULT",
            "the function \"m.f\"",
        ),
        (
            false,
            "ALTER TABLE quorlock.locks ADD CONSTRAINT c CHECK (m.f() = 0) NOT VALID",
            "ALTER TABLE quorlock.locks DROP CONSTRAINT c",
            "the function \"m.f\"",
        ),
        (
            false,
            "CREATE RULE r AS ON UPDATE TO quorlock.meta DO ALSO SELECT m.f()",
            "DROP RULE r ON quorlock.meta",
            "the function \"m.f\"",
        ),
        (
            false,
            "CREATE POLICY p ON quorlock.locks USING (m.f() = 0)",
            "DROP POLICY p ON quorlock.locks",
            "the function \"m.f\"",
        ),
        (
            false,
            "CREATE TABLE m.child () INHERITS (quorlock.locks); ALTER TABLE m.child OWNER TO mallory",
            "DROP TABLE m.child",
            "the table \"m.child\"",
        ),
        (
            false,
            "ALTER TABLE quorlock.readers OWNER TO mallory",
            "ALTER TABLE quorlock.readers OWNER TO postgres",
            "the table \"quorlock.readers",
        ),
    ] {
        if is_mallory {
            by_mallory(&client, made).await;
        } else {
            client.batch_execute(made).await.unwrap_or_else(|error| panic!("{made}: {error:?}"));
        }
        refused(&server, &client, thing).await;
        client.batch_execute(undone).await.unwrap();
        node(&server.url("")).ready().await.unwrap_or_else(|error| panic!("after {undone}: {error:#}"));
    }
}

/// As docs/postgres.md says.
#[tokio::test]
async fn a_schema_of_the_databases_owner_serves_a_user_without_create() {
    let Some(server) = server() else { return };
    let client = server.client().await;
    let made = "CREATE ROLE locks_owner NOLOGIN; ALTER DATABASE postgres OWNER TO locks_owner; CREATE USER app; CREATE USER other";
    client.batch_execute(made).await.unwrap();
    client.batch_execute(&format!("SET ROLE locks_owner; {SCHEMA}; RESET ROLE")).await.unwrap();
    let granted = "GRANT USAGE ON SCHEMA quorlock TO app; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA quorlock TO app";
    client.batch_execute(granted).await.unwrap();
    for user in ["app", "postgres"] {
        node(&server.url("").replace("postgres@", &format!("{user}@"))).ready().await.unwrap();
    }
    let fixed = "SELECT bool_and(proconfig = '{\"search_path=pg_catalog, pg_temp\"}') FROM pg_proc
                 WHERE pronamespace = 'quorlock'::regnamespace";
    assert_eq!(client.query_one(fixed, &[]).await.unwrap().get::<_, Option<bool>>(0), Some(true));
    // A function that looks names up elsewhere is not ours.
    client.batch_execute(&sql("ALTER FUNCTION rules.free RESET search_path")).await.unwrap();
    let error = node(&server.url("")).ready().await.unwrap_err();
    assert!(error.to_string().contains("were changed"), "{error:#}");
}

/// The table of another program may have any owner, but what it calls runs with the rights of a client too.
#[tokio::test]
async fn nothing_that_others_attach_to_shedlocks_table_runs() {
    let Some(server) = server() else { return };
    let client = with_mallory(&server).await;
    let table = "CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, \
                 locked_by varchar(255) NOT NULL); GRANT TRIGGER ON shedlock TO mallory; GRANT CREATE ON SCHEMA public TO mallory";
    client.batch_execute(table).await.unwrap();
    // A function that fits a call better than the server's, in a schema of the user's search path.
    let functions = format!(
        "CREATE FUNCTION public.format(text, name, name) RETURNS text LANGUAGE plpgsql AS $$ BEGIN {DEED};
         RETURN 'public.shedlock'; END $$;
         CREATE FUNCTION m.t() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {DEED}; RETURN NEW; END $$"
    );
    by_mallory(&client, &functions).await;
    let url = server.url("&layout=shedlock");
    node(&url).ready().await.unwrap();
    assert!(!is_superuser(&client).await, "a function of the search path ran with the rights of a superuser");
    let trigger = "CREATE TRIGGER t BEFORE INSERT OR UPDATE ON shedlock FOR EACH ROW EXECUTE FUNCTION m.t()";
    by_mallory(&client, trigger).await;
    let error = node(&url).ready().await.unwrap_err().to_string();
    assert!(
        error.contains("the function \"m.t\" belongs to \"mallory\"") && error.contains("drop the trigger"),
        "{error}"
    );
    assert!(!is_superuser(&client).await, "a trigger ran with the rights of a superuser");
    client.batch_execute("DROP TRIGGER t ON shedlock; ALTER TABLE shedlock OWNER TO mallory").await.unwrap();
    node(&url).ready().await.unwrap();
}
