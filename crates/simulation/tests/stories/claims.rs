//! Claims on devices, made of templates.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use serde_json::{Value, json};

use super::{disturbed, state};
use crate::common::{MINUTE, pod};
use crate::workloads::phase;

const CLAIMS: &str = "resourceclaim-controller";
const COLLECTOR: &str = "garbage-collector-controller";

/// Two Pods with a claim of a template each, and one device: the second Pod gets it when the first has ended.
#[tokio::test(start_paused = true)]
async fn pods_with_claims_of_a_template() -> Result<()> {
    disturbed(&[CLAIMS, COLLECTOR], async |stage| {
        let cluster = stage.cluster;
        cluster.create::<DeviceClass>(&json!({"metadata": {"name": "gpu"}, "spec": {}})).await?;
        let spec = json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}});
        let template = json!({"metadata": {"name": "one", "namespace": "default"}, "spec": {"spec": spec}});
        cluster.create::<ResourceClaimTemplate>(&template).await?;
        let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "gpu.example.com", "allNodes": true,
            "devices": [{"name": "d"}], "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}});
        cluster.create::<ResourceSlice>(&slice).await?;
        let place = json!([{"name": "device", "resourceClaimTemplateName": "one"}]);
        for name in ["a", "b"] {
            cluster.create::<Pod>(&pod(name, json!({"spec": {"resourceClaims": place}}))).await?;
        }
        let running = |all: &[Pod]| {
            let mut names: Vec<_> = all
                .iter()
                .filter(|p| phase(p) == "Running")
                .filter_map(|p| p.metadata.name.clone())
                .collect();
            names.sort();
            names
        };
        stage.all::<Pod>("one runs", |all| running(all).len() == 1).await?;
        stage.pass(MINUTE).await?;
        let pods = cluster.list::<Pod>("default").await?;
        ensure!(running(&pods).len() == 1, "one device is for one Pod");
        ensure!(cluster.list::<ResourceClaim>("default").await?.len() == 2, "each has one claim");
        let first = running(&pods).pop().context("a name")?;
        cluster.take::<Pod>("default", &first).await?;
        let other = if first == "a" { "b" } else { "a" };
        stage.all::<Pod>("the other runs", |all| running(all) == [other]).await?;
        stage
            .all::<ResourceClaim>("its claim is left", |all| {
                let reserved =
                    all.iter().flat_map(|c| c.status.iter().flat_map(|s| s.reserved_for.iter().flatten()));
                all.len() == 1 && reserved.map(|r| r.name.as_str()).eq([other])
            })
            .await?;
        stage.pass(MINUTE).await?;
        let claims = state::<ResourceClaim>(cluster).await?;
        // When it was allocated depends on the disturbance.
        let devices: Vec<&Value> =
            claims.as_array().into_iter().flatten().map(|c| &c["status"]["allocation"]["devices"]).collect();
        let end = json!(devices);
        cluster.take::<Pod>("default", other).await?;
        stage.all::<ResourceClaim>("no claim is left", <[_]>::is_empty).await?;
        Ok(end)
    })
    .await
}
