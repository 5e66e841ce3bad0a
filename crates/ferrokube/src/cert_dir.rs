//! The certificate with which a component serves, in the directory of `--cert-dir`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use api::pem;
use serving::tls::Identity;

use crate::private;

/// The certificate in a directory, and its key. They are made if neither is there, so that the next process has the same.
///
/// # Errors
/// They cannot be made or written, or only one of them is there.
pub(crate) fn kept(name: &str, dir: &Path, own: impl FnOnce() -> Result<Identity>) -> Result<[PathBuf; 2]> {
    let files = [dir.join(format!("{name}.crt")), dir.join(format!("{name}.key"))];
    match files.each_ref().map(|file| file.exists()) {
        [true, true] => {}
        [false, false] => {
            let unwritten = || format!("cannot keep a certificate in --cert-dir {}", dir.display());
            let (chain, key) = own()?;
            fs::create_dir_all(dir).with_context(unwritten)?;
            let text = pem::encode("PRIVATE KEY", key.secret_der());
            let written = private::create(&files[1]).and_then(|mut file| file.write_all(text.as_bytes()));
            written.with_context(unwritten)?;
            let text: String = chain.iter().map(|der| pem::encode_certificate(der)).collect();
            fs::write(&files[0], text).with_context(unwritten)?;
        }
        _ => bail!(
            "of {} and {} only one is there; remove it, or add the other",
            files[0].display(),
            files[1].display()
        ),
    }
    Ok(files)
}
