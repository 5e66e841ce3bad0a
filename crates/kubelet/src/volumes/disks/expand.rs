//! The growth on the node of a FlexVolume and of a device of the node's own (upstream: `pkg/volume/flexvolume/expander.go`,
//! `NodeExpand` of `pkg/volume/local`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::disk::{Flex, Kind};
use super::error::{DiskError, Step, Why};
use super::format;
use super::give::{Giving, known};
use super::table::Table;
use crate::volumes::growth::Growth;
use crate::work::try_blocking;
use plugins::flex::{self, Driver};

impl Giving {
    /// Looks whether a Pod's volume, which is at `path`, is to grow, and makes it larger. `running`: containers have it.
    pub(super) async fn expand(&self, path: &Path, running: bool) -> Result<(), DiskError> {
        let (room, disk) = (&self.room, &self.disk);
        let grows = disk.grows(self.driver.as_deref()) && !(disk.read_only && running);
        let Some(claim) = disk.claim.as_ref().filter(|_| grows) else { return Ok(()) };
        let step = if running { Step::Expand } else { Step::SetUpExpand };
        let growth = Growth {
            client: &room.of.client,
            recorder: &room.of.giver.recorder,
            clock: room.of.clock,
            node: &room.of.node_name,
            pod: &self.pod,
            volume: &disk.name,
            claim,
        };
        let Some(due) = growth.due(None).await else { return Ok(()) };
        if disk.read_only {
            growth.refuse(&due);
            return Ok(());
        }
        let dir = room.dir(&disk.staged());
        let _turn = room.turn(&dir.to_string_lossy()).await;
        if !due.is_now(room.sizes.of(dir.clone(), due.has)) {
            return Ok(());
        }
        growth.begin(&due).await.map_err(|why| self.failed(step)(Why::Text(why)))?;
        let grown = match (&disk.kind, &self.driver) {
            (Kind::Flex(of), Some(driver)) => {
                self.call(of, driver, (&dir, path), (due.capacity, due.has)).await
            }
            (Kind::Local(device), _) if !disk.block => {
                format::grow(&room.host, device, path).await.map_err(Why::from)
            }
            // A device has the size that it has.
            _ => Ok(()),
        };
        if let Err(why) = grown {
            growth.fail(&due, &why.to_string(), false, room.sizes.failed(&dir)).await;
            return Err(self.failed(step)(why));
        }
        room.sizes.grown(dir, due.capacity);
        growth.end(&due).await.map_err(|why| self.failed(step)(Why::Text(why)))
    }

    /// Has the driver make the file system larger, or does so itself.
    async fn call(
        &self,
        of: &Flex,
        driver: &Driver,
        (dir, path): (&Path, &Path),
        (new, old): (i64, i64),
    ) -> Result<(), Why> {
        let disk = &self.disk;
        let device = device_of(dir.to_owned()).await?;
        let options =
            flex::options((&disk.fs_type, disk.read_only, &disk.name), BTreeMap::new(), &of.options);
        let (at, mounted) = (device.to_string_lossy(), path.to_string_lossy());
        let arguments: [&str; 5] = [&options, &at, &mounted, &new.to_string(), &old.to_string()];
        if known(driver.call("expandfs", &arguments).await)?.is_some() {
            return Ok(());
        }
        Ok(format::grow(&self.room.host, &device, path).await?)
    }
}

/// The device that is mounted at a path, as the kernel names it; empty if none is.
async fn device_of(dir: PathBuf) -> Result<PathBuf, Why> {
    Ok(try_blocking(move || Table::read().map(|table| table.source(&dir))).await?)
}
