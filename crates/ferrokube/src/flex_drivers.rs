//! The drivers of FlexVolumes that attach volumes to nodes for the controllers: programs of this machine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use controllers::{FlexDrivers, FlexVolume as Flex};
use futures::future::BoxFuture;
use plugins::flex::{self, CallError, Drivers};

#[derive(Debug, Clone)]
struct Programs(Arc<Drivers>);

/// Those in a directory, which need not be there.
pub(crate) fn in_dir(dir: &Path) -> Arc<dyn FlexDrivers> {
    Arc::new(Programs(Arc::new(Drivers::new(dir.to_owned()))))
}

impl FlexDrivers for Programs {
    fn attach(
        &self,
        volume: String,
        of: Flex,
        node: String,
    ) -> BoxFuture<'static, Result<Option<String>, String>> {
        let drivers = self.0.clone();
        Box::pin(async move {
            let driver = match drivers.get(&of.driver).await {
                Ok(driver) if driver.capabilities.attach => driver,
                Ok(_) => return Ok(None),
                Err(error @ CallError::Missing(_)) => {
                    tracing::debug!(volume, %error, "a volume is not attached");
                    return Ok(None);
                }
                Err(error) => return Err(error.to_string()),
            };
            let options = flex::options((&of.fs_type, of.read_only, &volume), BTreeMap::new(), &of.options);
            match driver.call("attach", &[&options, &node]).await {
                Ok(answer) => Ok(Some(answer.device)),
                // The nodes find the device by themselves.
                Err(CallError::NotSupported) => Ok(Some(String::new())),
                Err(error) => Err(error.to_string()),
            }
        })
    }

    fn detach(&self, driver: String, volume: String, node: String) -> BoxFuture<'static, Result<(), String>> {
        let drivers = self.0.clone();
        Box::pin(async move {
            let driver = match drivers.get(&driver).await {
                Ok(driver) => driver,
                // DIFFERENCE: upstream waits for the driver, for ever if it was removed.
                Err(CallError::Missing(_)) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            };
            match driver.call("detach", &[&volume, &node]).await {
                Ok(_) | Err(CallError::NotSupported) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        })
    }

    fn expand(
        &self,
        volume: String,
        of: Flex,
        (new, old): (i64, i64),
    ) -> BoxFuture<'static, Result<bool, String>> {
        let drivers = self.0.clone();
        Box::pin(async move {
            let driver = match drivers.get(&of.driver).await {
                Ok(driver) => driver,
                // Upstream counts on the node then, too.
                Err(error) => {
                    tracing::debug!(volume, %error, "a volume is made larger on its node alone");
                    return Ok(true);
                }
            };
            let options = flex::options((&of.fs_type, of.read_only, &volume), BTreeMap::new(), &of.options);
            // The name is upstream's own, whatever the driver answers, and so is the path, which is none of this machine.
            match driver.call("getvolumename", &[&options]).await {
                Ok(_) | Err(CallError::NotSupported) => {}
                Err(error) => return Err(format!("GetVolumeName failed from getDeviceMountPath: {error}")),
            }
            let path = format!("{}/mounts/{volume}", of.driver);
            match driver.call("expandvolume", &[&options, &path, &new.to_string(), &old.to_string()]).await {
                Ok(_) | Err(CallError::NotSupported) => Ok(driver.capabilities.requires_fs_resize),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn drivers_are_called_as_upstream_does() {
        let dir = tempfile::tempdir().unwrap();
        let drivers = in_dir(dir.path());
        let of = |driver: &str| Flex { driver: driver.into(), ..Flex::default() };
        assert_eq!(drivers.attach("v".into(), of("k8s.io/d"), "n".into()).await, Ok(None));
        let install = |name: &str, cases: &str| {
            let at = dir.path().join(flex::directory(name));
            fs::create_dir(&at).unwrap();
            let program = at.join(name.rsplit('/').next().unwrap());
            let calls = dir.path().join("calls");
            let script = format!(
                "#!/bin/sh\necho \"$@\" >> {}\ncase $1 in\n{cases}\nesac\necho '{{\"status\": \"Not supported\"}}'; exit 1\n",
                calls.display()
            );
            fs::write(&program, script).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let success = |more: &str| format!("echo '{{\"status\": \"Success\"{more}}}'; exit 0;;");
        let init = success("");
        let attach = success(", \"device\": \"/dev/sdx\"");
        install("k8s.io/d", &format!("init) {init}\nattach) {attach}"));
        let attached = drivers.attach("v".into(), of("k8s.io/d"), "n".into()).await;
        assert_eq!(attached, Ok(Some("/dev/sdx".into())));
        drivers.detach("k8s.io/d".into(), "v".into(), "n".into()).await.unwrap();
        let options = r#"{"kubernetes.io/fsType":"","kubernetes.io/pvOrVolumeName":"v","kubernetes.io/readwrite":"rw"}"#;
        let calls = fs::read_to_string(dir.path().join("calls")).unwrap();
        assert_eq!(calls, format!("init\nattach {options} n\ndetach v n\n"));
        fs::write(dir.path().join("calls"), "").unwrap();
        assert_eq!(drivers.expand("v".into(), of("k8s.io/d"), (2048, 1024)).await, Ok(true));
        let calls = fs::read_to_string(dir.path().join("calls")).unwrap();
        let expected =
            format!("getvolumename {options}\nexpandvolume {options} k8s.io/d/mounts/v 2048 1024\n");
        assert_eq!(calls, expected);
        assert_eq!(drivers.expand("v".into(), of("gone"), (2, 1)).await, Ok(true));
        install(
            "whole",
            &format!(
                "init) {}\nexpandvolume) {}",
                success(", \"capabilities\": {\"requiresFSResize\": false}"),
                success("")
            ),
        );
        assert_eq!(drivers.expand("v".into(), of("whole"), (2, 1)).await, Ok(false));
        install(
            "small",
            &format!(
                "init) {}\nexpandvolume) echo '{{\"status\": \"Failure\", \"message\": \"full\"}}'; exit 1;;",
                success("")
            ),
        );
        let told = drivers.expand("v".into(), of("small"), (2, 1)).await.unwrap_err();
        assert_eq!(told, "expandvolume command failed, status: Failure, reason: full");
        install("other", &format!("init) {}", success(", \"capabilities\": {\"attach\": false}")));
        assert_eq!(drivers.attach("v".into(), of("other"), "n".into()).await, Ok(None));
        drivers.detach("gone".into(), "v".into(), "n".into()).await.unwrap();
        install("broken", "init) echo '{\"status\": \"Failure\", \"message\": \"no\"}'; exit 1;;");
        let told = drivers.attach("v".into(), of("broken"), "n".into()).await.unwrap_err();
        assert_eq!(told, "init command failed, status: Failure, reason: no");
    }
}
