//! Creates the schema, and checks an existing one.

use quorlock::node::{Access, NodeError, NodeErrorKind};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::before;
use super::server::Server;
use crate::RULES;
use crate::error::{SHAPE, failed, reason};

/// The version of the layout that this program creates and supports: of the tables, what their rows mean, and what clients
/// are notified of.
const VERSION: i32 = 1;
/// How often the schema is looked at. Clients of other versions may create it at the same moment.
const LOOKS: u32 = 5;

/// What of the schema is not there yet.
enum Missing {
    All,
    /// The functions of this version.
    Functions,
}

/// Checks the schema, and creates what is missing of it.
pub(super) async fn prepare(client: &Client, server: &Server) -> Result<(), NodeError> {
    for _ in 0..LOOKS {
        check_owners(client, server, None).await?;
        let Some(missing) = check_schema(client).await? else { return Ok(()) };
        create(client, server, &missing).await?;
    }
    Err(failed(NodeErrorKind::Busy, "other clients create or drop the schema `quorlock` at this moment"))
}

async fn create(client: &Client, server: &Server, missing: &Missing) -> Result<(), NodeError> {
    // Of several clients the others wait for the first at its first statement, and then look again.
    let script = format!(
        "BEGIN; SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '5s'; {}; COMMIT",
        crate::SCHEMA
    );
    let Err(error) = client.batch_execute(&script).await else { return Ok(()) };
    drop(client.batch_execute("ROLLBACK").await);
    let code = error.code().cloned();
    let others = [SqlState::DUPLICATE_SCHEMA, SqlState::DUPLICATE_FUNCTION, SqlState::UNIQUE_VIOLATION];
    if others.map(Some).contains(&code) {
        return Ok(());
    }
    if code == Some(SqlState::INSUFFICIENT_PRIVILEGE) {
        let (user, database) = (quoted(&server.user), quoted(&server.database));
        let words = match missing {
            Missing::All => format!(
                "there is no schema `quorlock` in the database {database} yet, and the user may not create it: run the script of \
                 docs/postgres.md as the owner of the database, and `GRANT USAGE ON SCHEMA quorlock TO {user}; GRANT SELECT, \
                 INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA quorlock TO {user}`"
            ),
            Missing::Functions => format!(
                "the schema `quorlock` in the database {database} lacks the functions of this version, and the user may not \
                 create them: run the script of docs/postgres.md, in this version, as the owner of the schema; clients of other \
                 versions go on meanwhile"
            ),
        };
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

/// Computes how the names of our functions, which are the rules of locks, have to begin: with the digest of their text. The
/// trigger's function is part of the layout. An editor may have changed the ends of lines.
const FUNCTIONS: &str = "
    SELECT digest, digest = $1, any_ours FROM (
        SELECT 'v' || left(encode(sha256(convert_to(string_agg(
                replace(proname || ' ' || proargtypes::regtype[]::text || ' ' || proconfig::text || ' ' || replace(prosrc, chr(13), ''), $1, ''),
                ' ' ORDER BY proname COLLATE \"C\"), 'UTF8')), 'hex'), 8) || '_' AS digest,
            coalesce(bool_or(starts_with(proname, $1)), false) AS any_ours
        FROM pg_proc WHERE pronamespace = to_regnamespace('quorlock') AND (proname = 'notify' OR starts_with(proname, $1))
    ) found";

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

/// Checks that what is there of the schema is what this program creates.
async fn check_schema(client: &Client) -> Result<Option<Missing>, NodeError> {
    // Whether there is a schema, by the snapshot of the statement, as its columns are: `to_regnamespace` may know already what
    // another client has just created.
    let layout = client.query_one(
        "SELECT string_agg(c.relname || '.' || a.attname || ':' || format_type(a.atttypid, NULL), ' '
                ORDER BY c.relname COLLATE \"C\", a.attname COLLATE \"C\"),
            coalesce(bool_and(c.relpersistence = 'p'), false),
            NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'quorlock')
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
         WHERE c.relnamespace = to_regnamespace('quorlock') AND c.relkind IN ('r', 'p')",
        &[],
    );
    let version = client.query_opt("SELECT version FROM quorlock.meta", &[]);
    let functions = client.query_one(FUNCTIONS, &[&RULES]);
    let (layout, version, functions) = futures::join!(layout, version, functions);
    let (layout, functions) = (layout.map_err(before)?, functions.map_err(before)?);
    let columns: Option<String> = layout.try_get(0).map_err(before)?;
    let [logged, absent] = [1, 2].map(|place| layout.try_get::<_, bool>(place));
    let (logged, absent) = (logged.map_err(before)?, absent.map_err(before)?);
    let digest: Option<String> = functions.try_get(0).map_err(before)?;
    let [ours, any_ours] = [1, 2].map(|place| functions.try_get::<_, Option<bool>>(place));
    let (ours, any_ours) = (ours.map_err(before)?, any_ours.map_err(before)?);
    if absent {
        return Ok(Some(Missing::All));
    }
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
    if version != Some(VERSION) || columns.as_deref() != Some(COLUMNS) {
        return Err(failed(NodeErrorKind::Misconfigured, SHAPE));
    }
    if !logged {
        let words = "a table of the schema `quorlock` is unlogged, so that a crash empties it: `ALTER TABLE … SET LOGGED`";
        return Err(failed(NodeErrorKind::Misconfigured, words));
    }
    if any_ours != Some(true) {
        return Ok(Some(Missing::Functions));
    }
    if ours != Some(true) {
        let words = format!(
            "the functions of this version, whose names begin with `quorlock.{RULES}`, or `quorlock.notify` were changed (their \
             text has the digest {}): drop those that begin so, and they are created again",
            digest.unwrap_or_default()
        );
        return Err(failed(NodeErrorKind::Misconfigured, words));
    }
    Ok(None)
}
