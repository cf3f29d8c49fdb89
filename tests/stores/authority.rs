//! A certificate authority, for tests of TLS in several packages, which include this file.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// Signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    /// Writes its own certificate, and returns the path.
    pub(crate) fn file(&self, folder: &Path, name: &str) -> PathBuf {
        written(folder.join(name), &self.certificate)
    }

    /// Writes a certificate for `localhost`, `NAME.pem`, and its key, `NAME.key`. Returns the paths.
    pub(crate) fn issue(
        &self,
        folder: &Path,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> [PathBuf; 2] {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        [("pem", certificate), ("key", key.serialize_pem())]
            .map(|(ending, text)| written(folder.join(format!("{name}.{ending}")), &text))
    }
}

fn written(path: PathBuf, text: &str) -> PathBuf {
    fs::write(&path, text).unwrap();
    path
}
