//! What is published or installed contains no part of the test kit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use toml::{Table, Value};

const KIT: &str = "quorlock-testkit";

/// The workspace's manifests by the names of their packages. No other package can depend on one of these.
struct Manifests(BTreeMap<String, Table>);

impl Manifests {
    fn read(root: &Path) -> Manifests {
        let manifest = |folder: &str| -> Table {
            fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap().parse().unwrap()
        };
        let members = manifest("")["workspace"]["members"].as_array().unwrap().clone();
        let manifests = members.iter().map(|member| manifest(member.as_str().unwrap()));
        Manifests(manifests.map(|one| (one["package"]["name"].as_str().unwrap().to_owned(), one)).collect())
    }

    /// The packages of the workspace from which `package` is built; not what its tests need.
    fn tree(&self, package: &str) -> BTreeSet<&str> {
        let (mut tree, mut waiting) = (BTreeSet::new(), vec![package]);
        while let Some(package) = waiting.pop() {
            let Some((name, manifest)) = self.0.get_key_value(package) else { continue };
            if tree.insert(name.as_str()) {
                waiting.extend(dependencies(manifest));
            }
        }
        tree
    }

    /// What is published, and the extension module of the Python package.
    fn shipped(&self) -> impl Iterator<Item = &str> {
        let shipped = self.0.iter().filter(|(name, manifest)| {
            let private = manifest["package"].get("publish").and_then(Value::as_bool) == Some(false);
            *name != KIT && (!private || *name == "quorlock-python")
        });
        shipped.map(|(name, _)| name.as_str())
    }
}

/// The packages that a manifest names for the build itself, on any platform, with any feature.
fn dependencies(manifest: &Table) -> impl Iterator<Item = &str> {
    let platforms = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let parts = platforms.filter_map(Value::as_table).chain([manifest]);
    let tables = parts.flat_map(|part| ["dependencies", "build-dependencies"].map(|kind| part.get(kind)));
    tables
        .flatten()
        .filter_map(Value::as_table)
        .flatten()
        .map(|(name, value)| value.get("package").and_then(Value::as_str).unwrap_or(name))
}

#[test]
fn nothing_that_ships_contains_the_test_kit() {
    let manifests = Manifests::read(Path::new(env!("CARGO_MANIFEST_DIR")));
    let shipped: Vec<_> = manifests.shipped().collect();
    for program in ["quorlock", "quorlock-cli", "quorlock-chaos", "quorlock-python"] {
        assert!(shipped.contains(&program), "{program} is not among what ships: {shipped:?}");
    }
    assert!(manifests.tree("quorlock-cli").contains("quorlock-servers"), "the tree is not walked");
    for package in shipped {
        let tree = manifests.tree(package);
        assert!(!tree.contains(KIT), "{package} is built from {tree:?}; {KIT} is for tests");
    }
}

#[test]
fn a_test_kit_behind_another_crate_is_found() {
    let manifest = |text: &str| text.parse::<Table>().unwrap();
    let manifests = Manifests(BTreeMap::from([
        ("quorlock-cli".to_owned(), manifest("[target.'cfg(unix)'.dependencies]\nmiddle.workspace = true")),
        ("middle".to_owned(), manifest("[dependencies]\nkit = { package = 'quorlock-testkit' }")),
        ("tested".to_owned(), manifest("[dev-dependencies]\nquorlock-testkit.workspace = true")),
        (KIT.to_owned(), Table::new()),
    ]));
    assert!(manifests.tree("quorlock-cli").contains(KIT), "it is built from the test kit");
    assert!(!manifests.tree("tested").contains(KIT), "only its tests are");
}
