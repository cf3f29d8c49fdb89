//! The files of an empty MariaDB or MySQL server, made once and copied for each.
//!
//! Copying takes a twentieth of the time of `mariadb-install-db` or `mysqld --initialize`. Servers of PostgreSQL are not copied: they
//! would have the same system identifier, and would be taken for the same server.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Weak};

use tempfile::TempDir;
use tokio::sync::Mutex;

use super::processes::run;
use super::{Engine, PLACE, is_root};
use crate::folder;

/// Deleted when the last server that was copied from it is gone.
#[derive(Debug)]
pub(super) struct Template {
    engine: Engine,
    folder: TempDir,
}

impl Template {
    /// Returns the current one of this program, or makes one.
    pub(super) async fn of(engine: &Engine) -> io::Result<Arc<Template>> {
        static CURRENT: Mutex<Weak<Template>> = Mutex::const_new(Weak::new());

        let mut current = CURRENT.lock().await;
        if let Some(template) =
            current.upgrade().filter(|template| template.engine.programs == engine.programs)
        {
            return Ok(template);
        }
        let folder = folder::private("quorlock-template.", Path::new(PLACE))?;
        let template = Arc::new(Template { engine: engine.clone(), folder });
        run(template.install()).await?;
        *current = Arc::downgrade(&template);
        Ok(template)
    }

    pub(super) async fn copy_to(&self, data: &Path) -> io::Result<()> {
        let mut copying = Command::new("cp");
        copying.arg("-a").arg(self.folder.path().join(DATA)).arg(data);
        run(copying).await?;
        // Each MySQL server makes an identifier of its own. MariaDB has no such file.
        fs::remove_file(data.join("auto.cnf"))
            .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
    }

    fn install(&self) -> Command {
        let folder = self.folder.path();
        let is_mysql = self.engine.is_mysql();
        let mut command = self.engine.command(if is_mysql { "mysqld" } else { "mariadb-install-db" });
        command.arg("--no-defaults").arg(format!("--datadir={}", folder.join(DATA).display()));
        // A starting server deletes leftovers in the folder of temporary tables.
        command.arg(format!("--tmpdir={}", folder.display()));
        if is_mysql {
            command.args(["--initialize-insecure", MYSQL_LOG]);
        } else {
            command.args(["--auth-root-authentication-method=normal", "--skip-test-db", INNODB_LOG]);
        }
        if is_root() {
            command.arg("--user=root");
        }
        command.current_dir(folder);
        command
    }
}

const DATA: &str = "data";
pub(super) const INNODB_LOG: &str = "--innodb-log-file-size=8M";
/// The setting of MySQL since 8.0.30.
pub(super) const MYSQL_LOG: &str = "--innodb-redo-log-capacity=32M";
