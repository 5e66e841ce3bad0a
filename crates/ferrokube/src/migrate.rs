//! Moves a cluster's objects between a data directory and an etcd.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use api::FeatureGates;
use apiserver::etcd::StoredForms;
use apiserver::etcd::encryption::Encryption;
use component::Shutdown;
use storage::{EtcdConfig, EtcdServers, Store, StoreConfig};
use tokio::fs;
use tokio::io::AsyncWriteExt;

use crate::cli::{Migrate, Storage};
use crate::data_dir::DataDir;
use crate::private;

/// Runs `ferrokube storage`.
pub(crate) async fn run(command: &Storage) -> Result<()> {
    let Storage::Migrate(flags) = command;
    match (is_etcd(&flags.from), is_etcd(&flags.to)) {
        (false, true) => into_etcd(flags).await,
        (true, false) => from_etcd(flags).await,
        (false, false) => bail!(
            "neither --from nor --to is an etcd (http://HOST:PORT): between data directories use `ferrokube snapshot`"
        ),
        (true, true) => {
            bail!(
                "both --from and --to are etcds: between those use `etcdctl snapshot save` and `etcdutl snapshot restore`"
            )
        }
    }
}

fn is_etcd(place: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| place.starts_with(scheme))
}

/// The configuration of an etcd. Keys of a KMS are kept up until shutdown.
async fn config(flags: &Migrate, urls: &str, shutdown: &Shutdown) -> Result<EtcdConfig> {
    let servers = EtcdServers {
        endpoints: urls.split(',').map(ToOwned::to_owned).collect(),
        ca_file: flags.etcd_cafile.clone(),
        cert_file: flags.etcd_certfile.clone(),
        key_file: flags.etcd_keyfile.clone(),
    };
    let forms = StoredForms::builtin().context("the schema lacks what every kind has")?;
    let gates = FeatureGates::parse(flags.feature_gates.iter().map(String::as_str))
        .context("invalid --feature-gates")?;
    let encryption = flags
        .encryption_provider_config
        .as_deref()
        .map(|file| Encryption::from_file(file, gates))
        .transpose()?;
    let forms = Arc::new(forms.encrypted(encryption.unwrap_or_default()));
    forms.encryption().start(shutdown).await;
    Ok(EtcdConfig { prefix: flags.etcd_prefix.clone(), ..EtcdConfig::new(servers, forms) })
}

async fn into_etcd(flags: &Migrate) -> Result<()> {
    let from = Path::new(&flags.from);
    if !from.join("store").exists() {
        bail!("{} holds no store: name the data directory of a cluster with --from", from.display());
    }
    let dir = DataDir::open(from)?;
    let path = dir.store();
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    let store = tokio::task::spawn_blocking(move || Store::open(StoreConfig::new(path), &stop)).await??;
    let moved = store.migrate_to_etcd(config(flags, &flags.to, &shutdown).await?).await;
    shutdown.finish().await;
    let moved = moved?;
    println!(
        "moved {} objects as of revision {} to {}; it goes on at revision {}",
        moved.objects, moved.from, flags.to, moved.to
    );
    println!("start the cluster with --etcd-servers {} from now on", flags.to);
    Ok(())
}

async fn from_etcd(flags: &Migrate) -> Result<()> {
    let dir = DataDir::open(Path::new(&flags.to))?;
    if dir.store().exists() {
        bail!("{} holds a store: move into a fresh data directory", dir.path().display());
    }
    let shutdown = Shutdown::new();
    let store = Store::open_etcd(config(flags, &flags.from, &shutdown).await?, &shutdown).await?;
    let file = dir.path().join("migration.part");
    let moved = async {
        save(&store, &file).await.with_context(|| format!("cannot write {}", file.display()))?;
        let (from, to) = (file.clone(), dir.store());
        anyhow::Ok(tokio::task::spawn_blocking(move || storage::restore(&from, &to)).await??)
    }
    .await;
    // The store is what counts; the file is of no more use, nor after a failure.
    let _ = fs::remove_file(&file).await;
    shutdown.finish().await;
    let moved = moved?;
    println!("moved {} objects as of revision {} to {}", moved.objects, moved.revision, dir.path().display());
    let keys = dir.path().join("pki");
    if !keys.exists() {
        let keys = keys.display();
        println!(
            "no keys in {keys}: put the old cluster's there, or new ones are made and old tokens and kubeconfigs end"
        );
    }
    Ok(())
}

/// Writes the whole store to a new file that only its owner can read.
async fn save(store: &Store, file: &Path) -> Result<()> {
    let backup = store.backup().await?;
    // An interrupted move leaves such a file.
    match fs::remove_file(file).await {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
        _ => {}
    }
    let mut out = fs::File::from_std(private::create(file)?);
    for piece in backup {
        out.write_all(&piece).await?;
    }
    out.flush().await?;
    Ok(out.sync_all().await?)
}
