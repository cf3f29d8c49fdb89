//! Creates the schema, and checks an existing one.

use quorlock::node::{Access, NodeError, NodeErrorKind};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::before;
use super::server::Server;
use crate::error::{SHAPE, failed, reason};

/// The version of the schema that this program creates and supports.
const VERSION: i32 = 1;

/// Creates the schema.
pub(super) async fn create(client: &Client, server: &Server) -> Result<(), NodeError> {
    // Of several clients the others wait for the first at its first statement, and then find the schema.
    let script = format!(
        "BEGIN; SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '5s'; {}; COMMIT",
        crate::SCHEMA
    );
    let Err(error) = client.batch_execute(&script).await else { return Ok(()) };
    drop(client.batch_execute("ROLLBACK").await);
    let code = error.code().cloned();
    if [SqlState::DUPLICATE_SCHEMA, SqlState::UNIQUE_VIOLATION].map(Some).contains(&code) {
        return Ok(());
    }
    if code == Some(SqlState::INSUFFICIENT_PRIVILEGE) {
        let (user, database) = (quoted(&server.user), quoted(&server.database));
        let words = format!(
            "there is no schema `quorlock` in the database {database} yet, and the user may not create it: run the script of \
             docs/postgres.md as the owner of the database, and `GRANT USAGE ON SCHEMA quorlock TO {user}; GRANT SELECT, INSERT, \
             UPDATE, DELETE ON ALL TABLES IN SCHEMA quorlock TO {user}`"
        );
        let reason = reason(words, &error);
        return Err(NodeError::Failed { kind: NodeErrorKind::PermissionDenied(Access::Operation), reason });
    }
    Err(before(error))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The columns of all tables that the script creates.
const COLUMNS: &str = "counters.counter:bigint counters.key:bytea history.name:text history.one:boolean history.place:text history.since:bigint \
                       history.writer:xid intents.expires:bigint intents.key:bytea \
                       intents.waiter:bytea locks.buried:bigint locks.expires:bigint locks.key:bytea \
                       locks.number:bigint locks.queued:boolean locks.released:bigint locks.token:bytea \
                       locks.told:bigint locks.wanted:smallint max_ttls.expires:bigint \
                       max_ttls.millis:bigint max_ttls.prefix:bytea meta.one:boolean meta.swept:bytea \
                       meta.version:integer \
                       readers.attempt:bytea readers.expires:bigint readers.key:bytea readers.token:bytea \
                       tombstones.attempt:bytea tombstones.expires:bigint tombstones.key:bytea \
                       waiters.channel:text waiters.context:bytea waiters.expires:bigint waiters.key:bytea waiters.since:bigint \
                       waiters.turn_key:bytea waiters.waiter:bytea";

/// The digest of the functions that the script creates, which are the rules of locks: what [`DIGEST`] returns.
const FUNCTIONS: &str = "815fe5d774d3acb4b8cc64023cb6519ca7eeaf6941e8ae837e9428b1b0c53b05";
/// Computes the digest of the functions that are there. An editor may have changed the ends of lines.
const DIGEST: &str = "
    SELECT encode(sha256(convert_to(
        string_agg(proname || ' ' || replace(prosrc, chr(13), ''), ' ' ORDER BY proname COLLATE \"C\"), 'UTF8')), 'hex')
    FROM pg_proc WHERE pronamespace = to_regnamespace('quorlock')";

/// Returns what would run with this user's rights although it belongs to someone else, the most general first:
/// the schema, what is in it, what was attached to its tables (a trigger needs no more than the privilege
/// `TRIGGER`), and the functions that any of these call. With the OID of a table of another program, whoever owns
/// that, only what its table calls. Reads nothing but the catalogue.
const FOREIGN: &str = "
    WITH schema AS (SELECT oid, nspname, nspowner FROM pg_namespace WHERE nspname = 'quorlock' AND $1::oid IS NULL),
    relation AS (SELECT oid, relname, relowner FROM pg_class WHERE relnamespace IN (SELECT oid FROM schema) OR oid = $1),
    part AS (
        SELECT 'pg_class'::regclass AS class, oid FROM relation
        UNION ALL SELECT 'pg_trigger'::regclass, t.oid FROM pg_trigger t JOIN relation r ON t.tgrelid = r.oid
        UNION ALL SELECT 'pg_rewrite'::regclass, w.oid FROM pg_rewrite w JOIN relation r ON w.ev_class = r.oid
        UNION ALL SELECT 'pg_attrdef'::regclass, d.oid FROM pg_attrdef d JOIN relation r ON d.adrelid = r.oid
        UNION ALL SELECT 'pg_constraint'::regclass, c.oid FROM pg_constraint c JOIN relation r ON c.conrelid = r.oid
        UNION ALL SELECT 'pg_policy'::regclass, p.oid FROM pg_policy p JOIN relation r ON p.polrelid = r.oid
    ),
    thing (rank, what, name, owner) AS (
        SELECT 1, 'schema', nspname::text, nspowner FROM schema
        UNION ALL SELECT 2, 'table', 'quorlock.' || relname, relowner FROM relation WHERE $1 IS NULL
        UNION ALL SELECT 2, 'function', 'quorlock.' || p.proname, p.proowner FROM pg_proc p JOIN schema s ON p.pronamespace = s.oid
        UNION ALL SELECT 2, 'type', 'quorlock.' || t.typname, t.typowner FROM pg_type t JOIN schema s ON t.typnamespace = s.oid
        UNION ALL SELECT 2, 'operator', 'quorlock.' || o.oprname, o.oprowner FROM pg_operator o
            JOIN schema s ON o.oprnamespace = s.oid
        UNION ALL SELECT 3, 'function', n.nspname || '.' || p.proname, p.proowner FROM part
            JOIN pg_depend d ON d.classid = part.class AND d.objid = part.oid AND d.refclassid = 'pg_proc'::regclass
            JOIN pg_proc p ON p.oid = d.refobjid JOIN pg_namespace n ON n.oid = p.pronamespace
        UNION ALL SELECT 3, 'table', c.oid::regclass::text, c.relowner FROM pg_inherits i
            JOIN relation r ON i.inhparent = r.oid JOIN pg_class c ON c.oid = i.inhrelid WHERE $1 IS NULL
        UNION ALL SELECT 3, 'table', c.oid::regclass::text, c.relowner FROM pg_constraint f
            JOIN relation r ON f.confrelid = r.oid JOIN pg_class c ON c.oid = f.conrelid WHERE $1 IS NULL
    )
    SELECT what, name, pg_get_userbyid(owner)::text,
        (SELECT pg_get_userbyid(datdba)::text FROM pg_database WHERE datname = current_database())
    FROM thing
    WHERE owner NOT IN (SELECT oid FROM pg_roles WHERE rolsuper OR rolname = current_user)
        AND owner NOT IN (SELECT datdba FROM pg_database WHERE datname = current_database())
    ORDER BY rank, what, name LIMIT 1";

/// Checks that nothing in the schema, or attached to it, belongs to someone who could let it run with this
/// user's rights; or nothing that was attached to the table of another program. Must come before the first
/// statement that names the schema or the table.
pub(super) async fn check_owners(
    client: &Client,
    server: &Server,
    table: Option<u32>,
) -> Result<(), NodeError> {
    let Some(row) = client.query_opt(FOREIGN, &[&table]).await.map_err(before)? else { return Ok(()) };
    let [what, name, owner, database_owner] = [0, 1, 2, 3].map(|place| row.try_get::<_, String>(place));
    let (what, name) = (what.map_err(before)?, quoted(&name.map_err(before)?));
    let (owner, database_owner) = (quoted(&owner.map_err(before)?), quoted(&database_owner.map_err(before)?));
    let user = quoted(&server.user);
    let cure = match table {
        None => {
            "drop it if you do not know it, for instance with `DROP SCHEMA quorlock CASCADE` while no lock is held, and run the \
             script of docs/postgres.md as the owner of the database"
        }
        Some(_) => "drop the trigger, rule, default, constraint or policy of the table that calls it",
    };
    let words = format!(
        "the {what} {name} belongs to {owner}, and would run with the rights of {user}; its owner may only be that user, the \
         owner of the database ({database_owner}) or a superuser: {cure}"
    );
    Err(failed(NodeErrorKind::Misconfigured, words))
}

/// Returns the OID of a table of another program, by the user's search path, of which the session of a node has
/// none. Nothing else is looked up by that path: others may have put functions into its schemas.
pub(super) async fn find_table(client: &Client, table: &str) -> Result<Option<u32>, NodeError> {
    client.batch_execute("RESET search_path").await.map_err(before)?;
    let row = client.query_one("SELECT pg_catalog.to_regclass($1)::pg_catalog.oid", &[&table]).await;
    client.batch_execute("SET search_path = pg_catalog").await.map_err(before)?;
    row.and_then(|row| row.try_get(0)).map_err(before)
}

/// Checks that the schema is the one that this program creates.
pub(super) async fn check_schema(client: &Client) -> Result<(), NodeError> {
    let columns = client.query_one(
        "SELECT string_agg(c.relname || '.' || a.attname || ':' || format_type(a.atttypid, NULL), ' '
                ORDER BY c.relname COLLATE \"C\", a.attname COLLATE \"C\"),
            coalesce(bool_and(c.relpersistence = 'p'), false),
            (SELECT coalesce(bool_and(coalesce(p.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false)), false)
                FROM pg_proc p WHERE p.pronamespace = to_regnamespace('quorlock'))
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
         WHERE c.relnamespace = to_regnamespace('quorlock') AND c.relkind IN ('r', 'p')",
        &[],
    );
    let version = client.query_opt("SELECT version FROM quorlock.meta", &[]);
    let (columns, version, functions) = futures::join!(columns, version, client.query_one(DIGEST, &[]));
    let columns = columns.map_err(before)?;
    let (found, logged): (Option<String>, bool) =
        (columns.try_get(0).map_err(before)?, columns.try_get(1).map_err(before)?);
    let functions: Option<String> = functions.and_then(|row| row.try_get(0)).map_err(before)?;
    let fixed: bool = columns.try_get(2).map_err(before)?;
    let version: Option<i32> = match version {
        Ok(row) => row.map(|row| row.try_get(0)).transpose().map_err(before)?,
        Err(error)
            if [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_COLUMN]
                .iter()
                .any(|code| error.code() == Some(code)) =>
        {
            None
        }
        Err(error) => return Err(before(error)),
    };
    if let Some(newer) = version.filter(|version| *version > VERSION) {
        let words = format!(
            "the schema `quorlock` has version {newer}, created by a newer program, and this one supports version \
             {VERSION}: update this program"
        );
        return Err(failed(NodeErrorKind::Unsupported, words));
    }
    let is_ours = found.as_deref() == Some(COLUMNS) && functions.as_deref() == Some(FUNCTIONS);
    if version != Some(VERSION) || !is_ours || !fixed {
        return Err(failed(NodeErrorKind::Misconfigured, SHAPE));
    }
    if !logged {
        let words = "a table of the schema `quorlock` is unlogged, so that a crash empties it: `ALTER TABLE … SET LOGGED`";
        return Err(failed(NodeErrorKind::Misconfigured, words));
    }
    Ok(())
}
