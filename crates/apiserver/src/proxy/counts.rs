//! How many commands and ports were handed on: by who speaks the newer WebSocket protocols, and how those ended that were
//! translated here. Upstream's metrics.

use std::sync::atomic::AtomicU64;

use api::{FeatureGates, Gate, Status};
use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use streaming::remotecommand::CommandError;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    proxy_type: &'static str,
    subresource: &'static str,
}

/// The code with which something ended.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Ended {
    code: u16,
}

/// The counters. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    streamed: Family<Labels, Counter<u64, AtomicU64>>,
    translated: Family<Ended, Counter<u64, AtomicU64>>,
    tunneled: Family<Ended, Counter<u64, AtomicU64>>,
}

impl Counts {
    /// Shows them on a page.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_websocket_streaming_requests",
            "[ALPHA] Total number of WebSocket streaming requests (exec/attach/portforward) routed by the API server, labeled by subresource and proxy_type. proxy_type is proxied_to_kubelet when the kubelet handles the request directly; otherwise translated_at_apiserver",
            self.streamed.clone(),
        );
        registry.register(
            "apiserver_stream_translator_requests",
            "[ALPHA] Total number of requests that were handled by the StreamTranslatorProxy, which processes streaming RemoteCommand/V5",
            self.translated.clone(),
        );
        registry.register(
            "apiserver_stream_tunnel_requests",
            "[ALPHA] Total number of requests that were handled by the StreamTunnelProxy, which processes streaming PortForward/V2",
            self.tunneled.clone(),
        );
    }

    /// Counts a command that was translated here. An exit code is an answer like any other.
    pub(super) fn translated(&self, result: &Result<(), CommandError>) {
        let code = match result {
            Ok(()) | Err(CommandError::Exit(_)) => StatusCode::OK,
            Err(CommandError::Refused(status)) => code_of(status),
            Err(CommandError::Failed(_) | CommandError::Gone) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        self.translated.get_or_create(&Ended { code: code.as_u16() }).inc();
    }

    /// Counts a command that was not begun: the client asked for it in a way that cannot be.
    pub(super) fn not_translated(&self) {
        self.translated.get_or_create(&Ended { code: StatusCode::BAD_REQUEST.as_u16() }).inc();
    }

    /// Counts a connection for ports, by the answer to the one who wants it.
    pub(super) fn tunneled(&self, code: StatusCode) {
        self.tunneled.get_or_create(&Ended { code: code.as_u16() }).inc();
    }

    /// Counts a request for a subresource of a Pod, whatever its protocol is, as upstream does; `direct`: its kubelet speaks
    /// the newer protocols.
    pub(super) fn streamed(&self, subresource: &str, gates: FeatureGates, direct: bool) {
        if let Some(labels) = labels(subresource, gates, direct) {
            self.streamed.get_or_create(&labels).inc();
        }
    }
}

/// The code in a status that a kubelet answered with.
fn code_of(status: &[u8]) -> StatusCode {
    let code = serde_json::from_slice(status).ok().map(|status: Status| status.code);
    code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
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
    fn commands_count_by_how_they_ended() {
        let page = |result: &Result<(), CommandError>| {
            let (counts, mut registry) = (Counts::default(), Registry::default());
            counts.register(&mut registry);
            counts.translated(result);
            let mut page = String::new();
            prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
            page
        };
        let check = |result: Result<(), CommandError>, code: u16| {
            let line = format!("apiserver_stream_translator_requests_total{{code=\"{code}\"}} 1");
            let page = page(&result);
            assert!(page.lines().any(|l| l == line), "{result:?}: {page}");
        };
        check(Ok(()), 200);
        check(Err(CommandError::Exit(137)), 200);
        check(Err(CommandError::Failed("no route to host".into())), 500);
        check(Err(CommandError::Gone), 500);
        let refused = |text: &str| Err(CommandError::Refused(text.as_bytes().to_vec()));
        check(refused(r#"{"kind":"Status","status":"Failure","code":404}"#), 404);
        check(refused(r#"{"kind":"Status","status":"Failure"}"#), 500);
        check(refused(r#"{"kind":"Status","status":"Failure","code":7}"#), 500);
    }

    #[test]
    fn clones_count_together() {
        let (counts, mut registry) = (Counts::default(), Registry::default());
        counts.register(&mut registry);
        counts.clone().streamed("exec", FeatureGates::default(), true);
        counts.streamed("exec", FeatureGates::default(), true);
        counts.clone().tunneled(StatusCode::SWITCHING_PROTOCOLS);
        counts.tunneled(StatusCode::SWITCHING_PROTOCOLS);
        counts.clone().not_translated();
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        for line in [
            r#"apiserver_websocket_streaming_requests_total{proxy_type="proxied_to_kubelet",subresource="exec"} 2"#,
            r#"apiserver_stream_tunnel_requests_total{code="101"} 2"#,
            r#"apiserver_stream_translator_requests_total{code="400"} 1"#,
        ] {
            assert!(page.lines().any(|l| l == line), "{page}");
        }
    }
}
