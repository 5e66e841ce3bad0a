//! Requests that the protocol forbids, with the answers that it asks for: those of csi-test's sanity tests.

use plugins::csi::controller_server::Controller;
use plugins::csi::node_server::Node;

use super::*;

const NAME: &str = "dirs.example.com";

fn driver(dir: &Path) -> Inner {
    fs::create_dir_all(dir.join("there")).unwrap();
    let endpoint = dir.join("csi.sock");
    Inner {
        name: NAME.to_owned(),
        pid: std::process::id(),
        data: dir.to_owned(),
        faults: Faults::default(),
        introduction: Introduction::new("CSIPlugin", NAME, &endpoint, &["1.0.0"]),
        endpoint,
        state: Arc::default(),
    }
}

fn can() -> pb::VolumeCapability {
    use pb::volume_capability::{AccessType, MountVolume};
    pb::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        ..pb::VolumeCapability::default()
    }
}

fn range(required_bytes: i64) -> Option<pb::CapacityRange> {
    Some(pb::CapacityRange { required_bytes, limit_bytes: 0 })
}

fn code<T>(answer: Result<Response<T>, Status>) -> Code {
    answer.map_or_else(|error| error.code(), |_| Code::Ok)
}

#[tokio::test]
async fn volumes_come_once_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let driver = driver(dir.path());
    let check = async |name: &str, can: Vec<pb::VolumeCapability>, size, expected| {
        let request = pb::CreateVolumeRequest {
            name: name.to_owned(),
            volume_capabilities: can,
            capacity_range: range(size),
            ..pb::CreateVolumeRequest::default()
        };
        assert_eq!(code(driver.create_volume(Request::new(request)).await), expected, "{name} {size}");
    };
    check("", vec![can()], 1, Code::InvalidArgument).await;
    check("new", vec![], 1, Code::InvalidArgument).await;
    check("a/b", vec![can()], 1, Code::InvalidArgument).await;
    check("..", vec![can()], 1, Code::InvalidArgument).await;
    check("new", vec![can()], 5, Code::Ok).await;
    check("new", vec![can()], 5, Code::Ok).await;
    check("new", vec![can()], 6, Code::AlreadyExists).await;
    let check = async |id: &str, expected| {
        let volume_id = id.to_owned();
        let request = pb::DeleteVolumeRequest { volume_id, ..pb::DeleteVolumeRequest::default() };
        assert_eq!(code(driver.delete_volume(Request::new(request)).await), expected, "{id}");
    };
    check("", Code::InvalidArgument).await;
    check("missing", Code::Ok).await;
    check("..", Code::Ok).await;
    assert!(dir.path().join("there").is_dir(), "nothing but the volume goes");
    check("new", Code::Ok).await;
    assert!(!dir.path().join("new").exists());
}

#[tokio::test]
async fn the_controller_refuses_what_lacks_a_part() {
    let dir = tempfile::tempdir().unwrap();
    let driver = driver(dir.path());
    let node = format!("node-of-{NAME}");
    let check = async |id: &str, node: &str, can: Option<pb::VolumeCapability>, expected| {
        let request = pb::ControllerPublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: node.to_owned(),
            volume_capability: can,
            ..pb::ControllerPublishVolumeRequest::default()
        };
        assert_eq!(code(driver.controller_publish_volume(Request::new(request)).await), expected, "{id}");
    };
    check("", &node, Some(can()), Code::InvalidArgument).await;
    check("there", "", Some(can()), Code::InvalidArgument).await;
    check("there", &node, None, Code::InvalidArgument).await;
    check("missing", &node, Some(can()), Code::NotFound).await;
    check("there", "elsewhere", Some(can()), Code::NotFound).await;
    check("there", &node, Some(can()), Code::Ok).await;
    let request = pb::ControllerUnpublishVolumeRequest::default();
    assert_eq!(code(driver.controller_unpublish_volume(Request::new(request)).await), Code::InvalidArgument);
    let check = async |id: &str, capacity_range, expected| {
        let volume_id = id.to_owned();
        let request = pb::ControllerExpandVolumeRequest {
            volume_id,
            capacity_range,
            ..pb::ControllerExpandVolumeRequest::default()
        };
        assert_eq!(code(driver.controller_expand_volume(Request::new(request)).await), expected, "{id}");
    };
    check("", range(1), Code::InvalidArgument).await;
    check("there", None, Code::InvalidArgument).await;
    check("missing", range(1), Code::NotFound).await;
    check("there", range(1), Code::Ok).await;
    let check = async |id: &str, can: Vec<pb::VolumeCapability>, expected: Result<bool, Code>| {
        let request = pb::ValidateVolumeCapabilitiesRequest {
            volume_id: id.to_owned(),
            volume_capabilities: can,
            ..pb::ValidateVolumeCapabilitiesRequest::default()
        };
        let answer = driver.validate_volume_capabilities(Request::new(request)).await;
        let confirmed = answer.map(|a| a.into_inner().confirmed.is_some()).map_err(|e| e.code());
        assert_eq!(confirmed, expected, "{id}");
    };
    check("", vec![can()], Err(Code::InvalidArgument)).await;
    check("there", vec![], Err(Code::InvalidArgument)).await;
    check("missing", vec![can()], Err(Code::NotFound)).await;
    check("there", vec![can()], Ok(true)).await;
    check("there", vec![pb::VolumeCapability::default()], Ok(false)).await;
}

#[tokio::test]
async fn the_node_refuses_what_lacks_a_part() {
    let dir = tempfile::tempdir().unwrap();
    let driver = driver(dir.path());
    let check = async |id: &str, path: &str, can: Option<pb::VolumeCapability>, expected| {
        let request = pb::NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: path.to_owned(),
            volume_capability: can.clone(),
            ..pb::NodeStageVolumeRequest::default()
        };
        assert_eq!(code(driver.node_stage_volume(Request::new(request)).await), expected, "{id} {path}");
        let request = pb::NodePublishVolumeRequest {
            volume_id: id.to_owned(),
            target_path: path.to_owned(),
            volume_capability: can,
            ..pb::NodePublishVolumeRequest::default()
        };
        assert_eq!(code(driver.node_publish_volume(Request::new(request)).await), expected, "{id} {path}");
    };
    check("", "/there", Some(can()), Code::InvalidArgument).await;
    check("there", "", Some(can()), Code::InvalidArgument).await;
    check("there", "/there", None, Code::InvalidArgument).await;
    check("missing", "/there", Some(can()), Code::NotFound).await;
    let check = async |id: &str, path: &str, expected| {
        let (volume_id, volume_path) = (id.to_owned(), path.to_owned());
        let request = pb::NodeGetVolumeStatsRequest {
            volume_id: volume_id.clone(),
            volume_path: volume_path.clone(),
            ..pb::NodeGetVolumeStatsRequest::default()
        };
        assert_eq!(code(driver.node_get_volume_stats(Request::new(request)).await), expected, "{id} {path}");
        let request =
            pb::NodeExpandVolumeRequest { volume_id, volume_path, ..pb::NodeExpandVolumeRequest::default() };
        assert_eq!(code(driver.node_expand_volume(Request::new(request)).await), expected, "{id} {path}");
    };
    check("", "/there", Code::InvalidArgument).await;
    check("there", "", Code::InvalidArgument).await;
    check("missing", "/there", Code::NotFound).await;
    for (id, path) in [("", "/there"), ("there", "")] {
        let (volume_id, path) = (id.to_owned(), path.to_owned());
        let (id, at) = (volume_id.clone(), path.clone());
        let request = pb::NodeUnstageVolumeRequest { volume_id: id, staging_target_path: at };
        assert_eq!(code(driver.node_unstage_volume(Request::new(request)).await), Code::InvalidArgument);
        let request = pb::NodeUnpublishVolumeRequest { volume_id, target_path: path };
        assert_eq!(code(driver.node_unpublish_volume(Request::new(request)).await), Code::InvalidArgument);
    }
}
