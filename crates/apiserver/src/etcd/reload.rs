//! The configuration of encryption that is read again when its file changes
//! (`--encryption-provider-config-automatic-reload`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::FeatureGates;
use component::Shutdown;
use tokio::time::{Instant, sleep, timeout_at};

use super::StoredForms;
use super::encryption::{Encryption, EncryptionError};

/// How often the file is looked at; upstream's time.
const LOOK: Duration = Duration::from_mins(1);
/// How long the plugins of a new configuration may take to be well, and how long those of the one before are still asked
/// for what was begun with them; upstream's least time.
const GRACE: Duration = Duration::from_secs(10);
/// How often it is looked whether they are.
const AGAIN: Duration = Duration::from_millis(100);

/// The file, and what is made of it.
pub(crate) struct Reload {
    file: PathBuf,
    gates: FeatureGates,
    /// The text of the configuration that counts.
    text: Vec<u8>,
    /// Ends what the configuration that counts keeps up.
    plugins: Shutdown,
}

impl Reload {
    /// The configuration in a file, and what follows the file from then on. Its plugins were asked how they are.
    ///
    /// # Errors
    /// Where it cannot be used.
    pub(crate) async fn new(
        file: PathBuf,
        gates: FeatureGates,
        shutdown: &Shutdown,
    ) -> Result<(Encryption, Self), EncryptionError> {
        let (encryption, text) = Encryption::with_text(&file, gates)?;
        let plugins = shutdown.child();
        encryption.start(&plugins).await;
        Ok((encryption, Self { file, gates, text, plugins }))
    }

    /// Follows the file until the shutdown: values are encrypted by what is in it once that can be used.
    pub(crate) fn follow(mut self, forms: Arc<StoredForms>, shutdown: &Shutdown) {
        let stop = shutdown.clone();
        shutdown.spawn(async move {
            while stop.run(sleep(LOOK)).await.is_some() {
                let looked = stop.run(self.look(&forms, &stop)).await;
                if let Some(Err(error)) = looked {
                    tracing::error!(
                        error,
                        "error processing encryption config file; the configuration before still counts"
                    );
                }
            }
            self.plugins.finish().await;
        });
    }

    /// Looks at the file once; whether something else counts now.
    async fn look(&mut self, forms: &StoredForms, shutdown: &Shutdown) -> Result<bool, String> {
        let (file, gates) = (self.file.clone(), self.gates);
        let read = tokio::task::spawn_blocking(move || Encryption::with_text(&file, gates));
        let (encryption, text) = read.await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        if text == self.text {
            return Ok(false);
        }
        let plugins = shutdown.child();
        encryption.start(&plugins).await;
        if let Err(why) = well(&encryption).await {
            plugins.finish().await;
            return Err(format!("health check for new transformers failed: {why}"));
        }
        forms.exchange(encryption);
        self.text = text;
        let before = std::mem::replace(&mut self.plugins, plugins);
        shutdown.spawn_one(async move {
            before.run(sleep(GRACE)).await;
            before.finish().await;
        });
        tracing::info!(file = %self.file.display(), "the configuration of encryption was read again");
        Ok(true)
    }
}

/// Waits until all plugins are well.
async fn well(encryption: &Encryption) -> Result<(), String> {
    let deadline = Instant::now() + GRACE;
    loop {
        let Err(why) = encryption.healthy() else { return Ok(()) };
        if timeout_at(deadline, sleep(AGAIN)).await.is_err() {
            return Err(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use storage::Codec;

    use super::*;

    fn config(key: &str, name: &str) -> String {
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  \
             providers:\n  - secretbox: {{keys: [{{name: {name}, secret: {key}}}]}}\n"
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_changes_counts_within_two_minutes() {
        const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("encryption.yaml");
        std::fs::write(&file, config(KEY, "one")).unwrap();
        let shutdown = Shutdown::new();
        let made = Reload::new(file.clone(), FeatureGates::default(), &shutdown).await;
        let (encryption, reload) = made.unwrap();
        let forms = Arc::new(StoredForms::builtin().unwrap().encrypted(encryption));
        let value = br#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"b"}}"#;
        let secret = StoredForms::builtin().unwrap().decode("", "secrets", b"k", value).unwrap();
        let key_of = || {
            let value = forms.encode("", "secrets", b"/registry/secrets/b/a", &secret).unwrap();
            String::from_utf8_lossy(&value[..28]).into_owned()
        };
        assert!(key_of().starts_with("k8s:enc:secretbox:v1:one:"));
        reload.follow(Arc::clone(&forms), &shutdown);
        std::fs::write(&file, "nonsense: [").unwrap();
        sleep(LOOK * 2).await;
        assert!(key_of().starts_with("k8s:enc:secretbox:v1:one:"), "what cannot be used changes nothing");
        std::fs::write(&file, config(KEY, "two")).unwrap();
        let changed = async {
            while !key_of().starts_with("k8s:enc:secretbox:v1:two:") {
                sleep(AGAIN).await;
            }
        };
        tokio::time::timeout(LOOK * 2, changed).await.unwrap();
        shutdown.finish().await;
    }
}
