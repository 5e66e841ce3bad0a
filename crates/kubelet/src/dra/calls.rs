//! Calls to a driver, in the version of the protocol that it speaks.

use std::path::PathBuf;
use std::time::Duration;

use plugins::dra::dra_plugin_client::DraPluginClient;
use plugins::dra_v1beta1::dra_plugin_client::DraPluginClient as V1beta1Client;
use plugins::{dra as pb, dra_v1beta1 as v1beta1};
use tokio::time::Instant;
use tonic::Code;
use tonic::transport::Channel;

use super::metrics::DraMetrics;
use crate::grpc::{CallError, within};

/// How long a call may take; upstream's.
const LIMIT: Duration = Duration::from_secs(45);

/// A service by which a driver prepares claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    V1,
    V1beta1,
}

impl Service {
    /// Its name among the versions that a plugin tells.
    pub(super) const ALL: [(&'static str, Self); 2] =
        [("v1.DRAPlugin", Self::V1), ("v1beta1.DRAPlugin", Self::V1beta1)];

    /// The first one of a plugin's list that this kubelet speaks.
    ///
    /// # Errors
    /// There is none; upstream's text.
    pub(super) fn choose(offered: &[String]) -> Result<Self, String> {
        if offered.is_empty() {
            return Err("empty list of supported gRPC services (aka supported versions)".into());
        }
        let known = |name: &String| Self::ALL.iter().find(|(n, _)| n == name).map(|(_, s)| *s);
        offered.iter().find_map(known).ok_or_else(|| {
            let quoted = |all: &mut dyn Iterator<Item = &str>| {
                all.map(api::go::quote).collect::<Vec<_>>().join(" ")
            };
            // A plugin's list may be of any length.
            let offered = quoted(&mut offered.iter().take(16).map(String::as_str));
            let known = quoted(&mut Self::ALL.iter().map(|(name, _)| *name));
            format!(
                "none of services supported by the plugin ([{offered}]) are supported by the kubelet ([{known}])"
            )
        })
    }
}

/// A plugin of a driver.
#[derive(Debug, Clone)]
pub(super) struct Plugin {
    pub(super) driver: String,
    pub(super) endpoint: PathBuf,
    pub(super) service: Service,
    pub(super) channel: Channel,
}

impl Plugin {
    /// Has claims prepared.
    pub(super) async fn prepare(
        &self,
        claims: &[pb::Claim],
        metrics: &DraMetrics,
    ) -> Result<pb::NodePrepareResourcesResponse, CallError> {
        let began = Instant::now();
        let (method, answer) = match self.service {
            Service::V1 => {
                let mut client = DraPluginClient::new(self.channel.clone());
                let request = pb::NodePrepareResourcesRequest { claims: claims.to_vec() };
                let answer = within(LIMIT, client.node_prepare_resources(request)).await;
                ("/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", answer)
            }
            Service::V1beta1 => {
                let mut client = V1beta1Client::new(self.channel.clone());
                let claims = claims.iter().map(older).collect();
                let request = v1beta1::NodePrepareResourcesRequest { claims };
                let answer = within(LIMIT, client.node_prepare_resources(request)).await;
                ("/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources", answer.map(newer))
            }
        };
        self.count(metrics, method, answer.as_ref().err(), began);
        answer
    }

    /// Has claims given back.
    pub(super) async fn unprepare(
        &self,
        claims: &[pb::Claim],
        metrics: &DraMetrics,
    ) -> Result<pb::NodeUnprepareResourcesResponse, CallError> {
        let began = Instant::now();
        let (method, answer) = match self.service {
            Service::V1 => {
                let mut client = DraPluginClient::new(self.channel.clone());
                let request = pb::NodeUnprepareResourcesRequest { claims: claims.to_vec() };
                let answer = within(LIMIT, client.node_unprepare_resources(request)).await;
                ("/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources", answer)
            }
            Service::V1beta1 => {
                let mut client = V1beta1Client::new(self.channel.clone());
                let claims = claims.iter().map(older).collect();
                let request = v1beta1::NodeUnprepareResourcesRequest { claims };
                let answer = within(LIMIT, client.node_unprepare_resources(request)).await;
                let newer = |answer: v1beta1::NodeUnprepareResourcesResponse| {
                    let one = |(uid, one): (String, v1beta1::NodeUnprepareResourceResponse)| {
                        (uid, pb::NodeUnprepareResourceResponse { error: one.error })
                    };
                    let claims = answer.claims.into_iter().map(one).collect();
                    pb::NodeUnprepareResourcesResponse { claims }
                };
                ("/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources", answer.map(newer))
            }
        };
        self.count(metrics, method, answer.as_ref().err(), began);
        answer
    }

    fn count(&self, metrics: &DraMetrics, method: &'static str, error: Option<&CallError>, began: Instant) {
        let code = error.map_or(Code::Ok, CallError::code);
        metrics.call(&self.driver, method, code, began.elapsed());
    }
}

fn older(claim: &pb::Claim) -> v1beta1::Claim {
    let pb::Claim { namespace, uid, name } = claim.clone();
    v1beta1::Claim { namespace, uid, name }
}

fn newer(answer: v1beta1::NodePrepareResourcesResponse) -> pb::NodePrepareResourcesResponse {
    let device = |d: v1beta1::Device| pb::Device {
        request_names: d.request_names,
        pool_name: d.pool_name,
        device_name: d.device_name,
        cdi_device_ids: d.cdi_device_ids,
        // Devices were not shared yet.
        share_id: None,
    };
    let one = |(uid, one): (String, v1beta1::NodePrepareResourceResponse)| {
        let devices = one.devices.into_iter().map(device).collect();
        (uid, pb::NodePrepareResourceResponse { devices, error: one.error })
    };
    pb::NodePrepareResourcesResponse { claims: answer.claims.into_iter().map(one).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cases of `TestRegistrationHandler` that are about versions.
    #[test]
    fn services_are_negotiated() {
        let check = |offered: &[&str], expected: Result<Service, &str>| {
            let offered: Vec<String> = offered.iter().map(ToString::to_string).collect();
            assert_eq!(Service::choose(&offered), expected.map_err(str::to_owned), "{offered:?}");
        };
        check(&["v1.DRAPlugin"], Ok(Service::V1));
        check(&["v1beta1.DRAPlugin"], Ok(Service::V1beta1));
        check(&["v1.DRAPlugin", "v1beta1.DRAPlugin"], Ok(Service::V1));
        check(&["v1beta1.DRAPlugin", "v1.DRAPlugin"], Ok(Service::V1beta1));
        check(&["v1alpha1.DRAResourceHealth", "v1.DRAPlugin"], Ok(Service::V1));
        check(&[], Err("empty list of supported gRPC services (aka supported versions)"));
        check(
            &["some-random-string", "v1alpha4.Node"],
            Err(
                "none of services supported by the plugin ([\"some-random-string\" \"v1alpha4.Node\"]) are supported by the kubelet ([\"v1.DRAPlugin\" \"v1beta1.DRAPlugin\"])",
            ),
        );
    }
}
