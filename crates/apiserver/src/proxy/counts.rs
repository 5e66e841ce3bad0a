//! How many commands and ports were handed on, by who speaks the newer WebSocket protocols; upstream's metric.

use std::sync::atomic::AtomicU64;

use api::{FeatureGates, Gate};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    proxy_type: &'static str,
    subresource: &'static str,
}

/// The counters. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts(Family<Labels, Counter<u64, AtomicU64>>);

impl Counts {
    /// Shows them on a page.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_websocket_streaming_requests",
            "[ALPHA] Total number of WebSocket streaming requests (exec/attach/portforward) routed by the API server, labeled by subresource and proxy_type. proxy_type is proxied_to_kubelet when the kubelet handles the request directly; otherwise translated_at_apiserver",
            self.0.clone(),
        );
    }

    /// Counts a request for a subresource of a Pod, whatever its protocol is, as upstream does; `direct`: its kubelet speaks
    /// the newer protocols.
    pub(super) fn streamed(&self, subresource: &str, gates: FeatureGates, direct: bool) {
        if let Some(labels) = labels(subresource, gates, direct) {
            self.0.get_or_create(&labels).inc();
        }
    }
}

/// How a request counts; not at all where its gate is off.
fn labels(subresource: &str, gates: FeatureGates, direct: bool) -> Option<Labels> {
    let (subresource, gate) = match subresource {
        "exec" => ("exec", Gate::TranslateStreamCloseWebsocketRequests),
        "attach" => ("attach", Gate::TranslateStreamCloseWebsocketRequests),
        "portforward" => ("portforward", Gate::PortForwardWebsockets),
        _ => return None,
    };
    let proxy_type = if direct { "proxied_to_kubelet" } else { "translated_at_apiserver" };
    gates.enabled(gate).then_some(Labels { proxy_type, subresource })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_by_who_speaks_the_newer_protocols() {
        let check = |subresource: &str, off: Option<Gate>, direct: bool, expected: Option<(&str, &str)>| {
            let gates = off.into_iter().fold(FeatureGates::default(), |gates, gate| gates.with(gate, false));
            let labels = labels(subresource, gates, direct);
            assert_eq!(labels.map(|l| (l.subresource, l.proxy_type)), expected, "{subresource} {off:?}");
        };
        let (kubelet, here) = ("proxied_to_kubelet", "translated_at_apiserver");
        for name in ["exec", "attach", "portforward"] {
            check(name, None, true, Some((name, kubelet)));
            check(name, None, false, Some((name, here)));
        }
        let (commands, ports) = (Gate::TranslateStreamCloseWebsocketRequests, Gate::PortForwardWebsockets);
        check("exec", Some(commands), true, None);
        check("attach", Some(commands), false, None);
        check("portforward", Some(commands), false, Some(("portforward", here)));
        check("exec", Some(ports), false, Some(("exec", here)));
        check("portforward", Some(ports), true, None);
        check("log", None, true, None);
    }

    #[test]
    fn clones_count_together() {
        let (counts, mut registry) = (Counts::default(), Registry::default());
        counts.register(&mut registry);
        counts.clone().streamed("exec", FeatureGates::default(), true);
        counts.streamed("exec", FeatureGates::default(), true);
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        let line = r#"apiserver_websocket_streaming_requests_total{proxy_type="proxied_to_kubelet",subresource="exec"} 2"#;
        assert!(page.lines().any(|l| l == line), "{page}");
    }
}
