//! The parts of a container that come with its devices, from the answers of plugins. Pure.

use std::collections::BTreeMap;

use cri::runtime as cri_pb;

use super::allocated::Resources;
use crate::given::Given;

/// Joins the answers of a container's resources. Where two set the same thing, the first one counts, as upstream has it;
/// here they are in the order of the resources' names.
pub(super) fn given(resources: &Resources) -> Given {
    let mut all = Given::default();
    let mut envs: BTreeMap<&str, &str> = BTreeMap::new();
    for answer in resources.values().filter_map(|a| a.answer.as_ref()) {
        for (key, value) in &answer.envs {
            envs.entry(key).or_insert(value);
        }
        for (key, value) in &answer.annotations {
            all.annotations.entry(key.clone()).or_insert_with(|| value.clone());
        }
        for device in &answer.devices {
            if all.devices.iter().all(|d| d.container_path != device.container_path) {
                all.devices.push(cri_pb::Device {
                    container_path: device.container_path.clone(),
                    host_path: device.host_path.clone(),
                    permissions: device.permissions.clone(),
                });
            }
        }
        for mount in &answer.mounts {
            if all.mounts.iter().all(|m| m.container_path != mount.container_path) {
                all.mounts.push(cri_pb::Mount {
                    container_path: mount.container_path.clone(),
                    host_path: mount.host_path.clone(),
                    readonly: mount.read_only,
                    ..cri_pb::Mount::default()
                });
            }
        }
        for device in &answer.cdi_devices {
            if !all.cdi_devices.contains(&device.name) {
                all.cdi_devices.push(device.name.clone());
            }
        }
    }
    all.envs = envs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    all
}

#[cfg(test)]
mod tests {
    use plugins::device as pb;

    use super::super::allocated::Allocation;
    use super::*;

    fn answer(mark: &str, cdi: &[&str]) -> Allocation {
        let both = [("SAME".to_owned(), mark.to_owned()), (format!("OF_{mark}"), "1".to_owned())];
        let answer = pb::ContainerAllocateResponse {
            envs: both.clone().into(),
            annotations: both.into(),
            mounts: ["/same", mark]
                .map(|path| pb::Mount {
                    container_path: path.to_owned(),
                    host_path: format!("/host/{mark}"),
                    read_only: true,
                })
                .into(),
            devices: ["/dev/same", mark]
                .map(|path| pb::DeviceSpec {
                    container_path: path.to_owned(),
                    host_path: format!("/dev/{mark}"),
                    permissions: "mrw".to_owned(),
                })
                .into(),
            cdi_devices: cdi.iter().map(|name| pb::CdiDevice { name: (*name).to_owned() }).collect(),
        };
        Allocation { answer: Some(answer), ..Allocation::default() }
    }

    /// As upstream's `TestDeviceRunContainerOptions` and `TestGetCDIDeviceInfo` have it.
    #[test]
    fn the_first_answer_counts() {
        let all: Resources = [
            ("a".to_owned(), answer("a", &["x", "y"])),
            ("b".to_owned(), answer("b", &["y", "z", "z"])),
            ("c".to_owned(), Allocation::default()),
        ]
        .into();
        let got = given(&all);
        assert_eq!(got.cdi_devices, ["x", "y", "z"]);
        let envs: Vec<_> = got.envs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(envs, [("OF_a", "1"), ("OF_b", "1"), ("SAME", "a")]);
        assert_eq!(got.annotations["SAME"], "a");
        let mounts: Vec<_> = got
            .mounts
            .iter()
            .map(|m| (m.container_path.as_str(), m.host_path.as_str(), m.readonly))
            .collect();
        assert_eq!(mounts, [("/same", "/host/a", true), ("a", "/host/a", true), ("b", "/host/b", true)]);
        let devices: Vec<_> =
            got.devices.iter().map(|d| (d.container_path.as_str(), d.host_path.as_str())).collect();
        assert_eq!(devices, [("/dev/same", "/dev/a"), ("a", "/dev/a"), ("b", "/dev/b")]);
        assert_eq!(given(&Resources::new()), Given::default());
    }
}
