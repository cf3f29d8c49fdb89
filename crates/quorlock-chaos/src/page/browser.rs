//! Tests of the page in Chromium. Skipped if none is installed.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::sample;
use super::tests::{HOSTILE, hostile, html};
use crate::outcome::Latency;

const DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn a_browser_draws_the_page_without_errors() {
    let Some(browser) = Browser::find() else { return };
    let outcome = sample::failed("everything", 42);
    let dom = browser.dom("one", &html(&[outcome]));
    assert_eq!(attribute(&dom, "data-errors"), None, "the script failed");
    let drawn = attribute(&dom, "data-drawn").expect("nothing was drawn").replace("&quot;", "\"");
    let drawn: serde_json::Value = serde_json::from_str(&drawn).expect("counts as JSON");
    let expected = serde_json::json!({
        "timelines": 1, "bins": 300, "faults": 15, "holds": 3000, "writes": 4, "violations": 3,
    });
    assert_eq!(drawn, expected, "not all of the outcome was drawn");
}

#[test]
fn a_browser_paints_holds_and_faults() {
    let Some(browser) = Browser::find() else { return };
    let picture = browser.screenshot("seen", &html(&[sample::failed("everything", 42)]));
    // The browser decodes the picture, so the test needs no decoder.
    let dom = browser.dom("picture", &looking_at(&picture));
    let figure =
        |name| -> f64 { attribute(&dom, name).expect("the picture was not read").parse().expect("a number") };
    assert!(figure("data-colours") > 200.0, "the picture has few colours");
    assert!(figure("data-ground") < 0.95, "one colour covers nearly all of the picture");
    // The legend alone has up to 336 of each.
    assert!(figure("data-holds") > 500.0, "the picture shows no holds of the first lock");
    assert!(figure("data-faults") > 2_000.0, "the picture shows no faults");
}

#[test]
fn a_browser_shows_verdicts_and_tables() {
    let Some(browser) = Browser::find() else { return };
    let page = html(&[
        sample::held("kill-masters", 1),
        sample::failed("freeze", 2),
        sample::broken_as_expected("early", 3),
    ]);
    let dom = browser.dom("tables", &page);
    assert_eq!(attribute(&dom, "data-errors"), None, "the script failed");
    let visible = without_scripts(&dom);
    for text in [
        "1 of 3 scenarios failed",
        "10 of 11 expectations held in 3 scenarios",
        "2 of 3 unexpected",
        "41 found; the first 7 as expected",
        "no two holders overlap",
        "`orders/1` held twice for 41.2ms",
        "unexpected: exclusion",
        "2 more",
        "99.93%",
        "88.4 ms",
        "no majority",
        "three in one place (0.4 ms)",
        "<span>--scenario</span> <span>freeze</span>",
        "15 faults, one by one",
        "node-1's clock set forward by 3 s",
        "worker-0 (virginia)",
    ] {
        assert!(visible.contains(text), "`{text}` is not on the page");
    }
}

#[test]
fn an_empty_page_claims_no_success() {
    let Some(browser) = Browser::find() else { return };
    let mut idle = sample::held("idle", 1);
    idle.verdicts.clear();
    for phase in &mut idle.phases {
        phase.latency = Latency::default();
    }
    for (outcomes, headline) in [(vec![], "Nothing was run"), (vec![idle], "Nothing was expected")] {
        let visible = without_scripts(&browser.dom("nothing", &html(&outcomes)));
        assert!(visible.contains(headline), "`{headline}` is not on the page");
        assert!(!visible.contains("All expectations held"), "no expectation is not a success");
        for figure in ["success", "p99"] {
            let shown = visible.matches(&format!("data-label=\"{figure}\">–<")).count();
            assert_eq!(shown, outcomes.len(), "a {figure} of nothing");
        }
    }
}

#[test]
fn a_browser_runs_no_hostile_text() {
    let Some(browser) = Browser::find() else { return };
    let markup = "</script><img src=x onerror=\"document.documentElement.dataset.errors='hostile'\"><!--";
    let text = format!("{markup}{HOSTILE}");
    let dom = browser.dom("hostile", &html(&[hostile(&text)]));
    assert_eq!(attribute(&dom, "data-errors"), None, "hostile text was run");
    assert!(attribute(&dom, "data-drawn").is_some(), "the timeline was not drawn because of hostile text");
    let visible = without_scripts(&dom);
    assert!(!visible.contains("<img"), "hostile text became an element");
    assert!(!visible.contains(['\u{2028}', '\u{2029}', '\u{202e}', '\0']), "a hidden character is shown");
}

#[test]
fn a_click_chooses_a_violation_and_keys_the_next_item() {
    let Some(browser) = Browser::find() else { return };
    let script = "<script>
        const { tip, canvas } = timelineOf(timelineFigures[0]);
        const key = (key) => canvas.dispatchEvent(new KeyboardEvent('keydown', { key }));
        document.querySelector('a[data-at]').click();
        root.dataset.clicked = tip.textContent;
        root.dataset.focused = document.activeElement === canvas;
        key('ArrowDown');
        root.dataset.down = tip.textContent;
        key('ArrowRight');
        root.dataset.right = tip.textContent;
        key('Escape');
        root.dataset.hidden = tip.hidden;
        </script></body>";
    let dom = browser.dom("keys", &html(&[sample::failed("everything", 42)]).replace("</body>", script));
    assert_eq!(attribute(&dom, "data-errors"), None, "the script failed");
    let value_of = |name| attribute(&dom, name).unwrap_or_default();
    assert!(
        value_of("data-clicked").starts_with("Violation: exclusionat 12.480 s"),
        "the click did not choose the violation"
    );
    assert_eq!(value_of("data-focused"), "true", "the timeline does not have the focus");
    assert!(value_of("data-down").starts_with("12.400 s to 12.500 s"), "another item of the lane below");
    assert!(value_of("data-right").starts_with("12.500 s to 12.600 s"), "another item to the right");
    assert_eq!(value_of("data-hidden"), "true", "Escape did not hide the tip");
}

#[test]
fn a_browser_draws_only_visible_timelines() {
    let Some(browser) = Browser::find() else { return };
    let dom = browser.dom("many", &html(&sample::many()));
    assert_eq!(attribute(&dom, "data-errors"), None, "the script failed");
    let drawn = attribute(&dom, "data-drawn").expect("nothing was drawn");
    assert!(
        drawn.starts_with("{&quot;timelines&quot;:1,"),
        "timelines outside of the window were drawn: {drawn}"
    );
}

/// A Chromium, and a folder for its files.
struct Browser {
    program: PathBuf,
    folder: TempDir,
}

impl Browser {
    fn find() -> Option<Browser> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let program = std::env::split_paths(&path)
            .flat_map(|folder| names.map(|name| folder.join(name)))
            .find(|program| program.is_file());
        if program.is_none() {
            // `eprintln` would be captured by the test harness.
            writeln!(io::stderr(), "skipped: no Chromium on the PATH for the page of quorlock-chaos").ok();
        }
        Some(Browser { program: program?, folder: tempfile::tempdir().expect("a folder") })
    }

    /// Returns the DOM after the scripts have run.
    fn dom(&self, name: &str, html: &str) -> String {
        self.open(name, html, &["--dump-dom".into()])
    }

    fn screenshot(&self, name: &str, html: &str) -> Vec<u8> {
        let picture = self.folder.path().join(format!("{name}.png"));
        let mut option = OsString::from("--screenshot=");
        option.push(&picture);
        self.open(name, html, &[option]);
        fs::read(picture).expect("no screenshot was taken")
    }

    fn open(&self, name: &str, html: &str, options: &[OsString]) -> String {
        let file = self.folder.path().join(format!("{name}.html"));
        fs::write(&file, html).expect("the page is written");
        let mut profile = OsString::from("--user-data-dir=");
        profile.push(self.folder.path().join("profile"));
        let mut command = Command::new(&self.program);
        command
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            // Virtual time, so that drawing has finished.
            .args(["--window-size=1200,2400", "--virtual-time-budget=10000"])
            .arg(profile)
            .args(options)
            .arg(address(&file));
        output(command)
    }
}

/// Returns the standard output of the program. Kills its process group at the deadline.
fn output(mut command: Command) -> String {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("the browser starts");
    let group = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
    let (done, ended) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        let mut pipe = child.stdout.take().expect("a pipe");
        pipe.read_to_end(&mut text).expect("the output is read");
        child.wait().expect("the browser exits");
        done.send(()).ok();
        String::from_utf8_lossy(&text).into_owned()
    });
    let in_time = ended.recv_timeout(DEADLINE).is_ok();
    // Fails if the browser has exited, because its group is empty then.
    killpg(group, Signal::SIGKILL).ok();
    let text = reader.join().expect("the output was read");
    assert!(in_time, "the browser did not exit within {DEADLINE:?}");
    text
}

fn address(file: &Path) -> OsString {
    let mut address = OsString::from("file://");
    address.push(file);
    address
}

/// Returns the value of an attribute of the root element.
fn attribute(dom: &str, name: &str) -> Option<String> {
    let root = dom.split_once("<html")?.1.split_once('>')?.0;
    let value = root.split_once(&format!("{name}=\""))?.1.split_once('"')?.0;
    Some(value.to_owned())
}

/// Returns the page without its scripts.
fn without_scripts(dom: &str) -> String {
    let mut pieces = dom.split("<script");
    let mut visible = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        visible.push_str(piece.split_once("</script>").map_or("", |(_, rest)| rest));
    }
    visible
}

/// Returns a page that counts the colours of a picture: the number of colours, the share of the most
/// frequent one, and the number of pixels with the colours of holds and faults.
fn looking_at(picture: &[u8]) -> String {
    let bytes: String = picture.iter().fold(String::new(), |bytes, byte| bytes + &format!("%{byte:02x}"));
    format!(
        "<!doctype html><html><body><img src='data:image/png,{bytes}'><script>
        addEventListener('load', () => {{
            const picture = document.querySelector('img'), canvas = document.createElement('canvas');
            [canvas.width, canvas.height] = [picture.naturalWidth, picture.naturalHeight];
            const context = canvas.getContext('2d'), colours = new Map();
            context.drawImage(picture, 0, 0);
            const {{ data }} = context.getImageData(0, 0, canvas.width, canvas.height);
            for (const pixel of new Uint32Array(data.buffer)) colours.set(pixel, (colours.get(pixel) ?? 0) + 1);
            const root = document.documentElement;
            root.dataset.colours = colours.size;
            root.dataset.ground = Math.max(...colours.values()) / (data.length / 4);
            root.dataset.holds = colours.get(0xffb27200) ?? 0; // --lock-0
            root.dataset.faults = colours.get(0xffd2eefb) ?? 0; // --fault-pale
        }});
        </script></body></html>",
    )
}
