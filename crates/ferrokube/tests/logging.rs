//! The logs of components, by upstream's flags and configuration files.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{Server, binary, eventually, free_port};

/// Runs a component that ends at once: there is no kubeconfig.
fn fails(component: &str, flags: &[&str]) -> Result<Output> {
    let mut command = Command::new(binary());
    command.arg(component).args(flags).env_remove("FERROKUBE_LOG");
    let out = command.output().context("running it")?;
    ensure!(!out.status.success(), "{component} {flags:?} runs");
    Ok(out)
}

/// The lines of a log in JSON; every line must be one.
fn lines(text: &[u8]) -> Result<Vec<Value>> {
    let text = std::str::from_utf8(text)?;
    let line = |line: &str| {
        let value: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
        ensure!(value["ts"].as_f64() > Some(1e12) && value["caller"].is_string(), "{line}");
        ensure!(value["msg"].is_string() && (value["v"].is_u64() || value["err"].is_string()), "{line}");
        Ok(value)
    };
    text.lines().map(line).collect()
}

fn messages(text: &[u8]) -> Result<Vec<String>> {
    Ok(lines(text)?.iter().filter_map(|line| Some(line["msg"].as_str()?.to_owned())).collect())
}

/// A flag without effect in each component, and the flags without which it says something else.
const COMPONENTS: [(&str, &[&str]); 4] = [
    ("kube-controller-manager", &["--kubeconfig=/nowhere", "--kube-api-qps=9"]),
    ("kube-scheduler", &["--kubeconfig=/nowhere", "--kube-api-qps=9"]),
    ("kube-proxy", &["--kubeconfig=/nowhere", "--ipvs-scheduler=rr"]),
    (
        "kubelet",
        &["--kubeconfig=/nowhere", "--kube-api-qps=9", "--fail-cgroupv1=false", "--fail-swap-on=false"],
    ),
];

#[test]
fn every_component_logs_json() -> Result<()> {
    for (component, flags) in COMPONENTS {
        let with = |more: &[&str]| fails(component, &[flags, more].concat());
        // Text, as always.
        let text = String::from_utf8(with(&[])?.stderr)?;
        ensure!(text.contains("\nferrokube: --kubeconfig /nowhere cannot be used: "), "{component}: {text}");
        ensure!(text.contains("has no effect here"), "{component}: {text}");
        // The same in JSON, and nothing else.
        let out = with(&["--logging-format=json"])?;
        ensure!(out.stdout.is_empty(), "{component}");
        let all = lines(&out.stderr)?;
        let last = all.last().context("no line")?;
        ensure!(last["msg"] == "command failed" && last.get("v").is_none(), "{component}: {last}");
        let why = last["err"].as_str().unwrap_or_default();
        ensure!(why.starts_with("--kubeconfig /nowhere cannot be used: "), "{component}: {last}");
        ensure!(messages(&out.stderr)?.iter().any(|m| m.contains("has no effect here")), "{component}");
        // Errors go to stderr alone, once the streams are split.
        let split = ["--logging-format=json", "--log-json-split-stream", "--log-json-info-buffer-size=64Ki"];
        let gate = "--feature-gates=LoggingAlphaOptions=true";
        let out = with(&[&split[..], &[gate]].concat())?;
        ensure!(messages(&out.stderr)? == ["command failed"], "{component}");
        ensure!(messages(&out.stdout)?.iter().any(|m| m.contains("has no effect here")), "{component}");
    }
    Ok(())
}

#[test]
fn settings_of_logs_are_refused_in_upstreams_words() -> Result<()> {
    let split = "Forbidden: Feature LoggingAlphaOptions is disabled";
    let disabled = "format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature";
    for (component, flags) in COMPONENTS {
        for (more, why) in [
            (&["--logging-format=xml"][..], "format: Invalid value: \"xml\": Unsupported log format"),
            (&["--log-text-split-stream"], split),
            (
                &["--logging-format=json", "--vmodule=a=1"],
                "vmodule: Forbidden: Only supported for text log format",
            ),
            (&["--logging-format=json", "--feature-gates=LoggingBetaOptions=false"], disabled),
            (
                &["--log-flush-frequency=-1s"],
                "flushFrequency: Invalid value: -1000000000: Must be greater than zero",
            ),
            (&["--vmodule=a"], "\"a\" does not have the pattern=N format"),
            (&["-v=-1"], "not a number from 0 to 2147483647"),
        ] {
            let text = String::from_utf8(fails(component, &[flags, more].concat())?.stderr)?;
            ensure!(text.contains(why), "{component} {more:?}: {text}");
        }
    }
    Ok(())
}

/// Writes a configuration, and answers the flag that names it.
fn config(dir: &Path, kind: &str, version: &str, fields: &str) -> Result<String> {
    let path = dir.join(format!("{kind}.yaml"));
    std::fs::write(&path, format!("apiVersion: {version}\nkind: {kind}\n{fields}\n"))?;
    Ok(format!("--config={}", path.display()))
}

#[test]
fn files_have_settings_of_logs() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let kubelet = |fields: &str| {
        let settings = format!("failCgroupV1: false\nfailSwapOn: false\n{fields}");
        let file = config(dir.path(), "KubeletConfiguration", "kubelet.config.k8s.io/v1beta1", &settings)?;
        fails("kubelet", &["--kubeconfig=/nowhere", &file])
    };
    let proxy = |fields: &str, more: &[&str]| {
        let version = "kubeproxy.config.k8s.io/v1alpha1";
        let file = config(dir.path(), "KubeProxyConfiguration", version, fields)?;
        fails("kube-proxy", &[&["--kubeconfig=/nowhere", file.as_str()], more].concat())
    };
    let json = "logging: {format: json, verbosity: 4, flushFrequency: 5000000000}";
    for out in [kubelet(json)?, proxy(json, &[])?, proxy(json, &["-v2"])?] {
        ensure!(messages(&out.stderr)?.last().is_some_and(|m| m == "command failed"), "{out:?}");
    }
    // A flag counts more.
    let text = String::from_utf8(proxy(json, &["--logging-format=text"])?.stderr)?;
    ensure!(text.starts_with("ferrokube: "), "{text}");
    let split = "logging: {format: json, options: {json: {splitStream: true}}}\noomScoreAdj: -998";
    let gated = format!("{split}\nfeatureGates: {{LoggingAlphaOptions: true}}");
    let out = proxy(&gated, &[])?;
    ensure!(messages(&out.stderr)? == ["command failed"] && !lines(&out.stdout)?.is_empty(), "{out:?}");
    let forbidden = "logging.options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled";
    for (out, why) in [
        (kubelet(split)?, forbidden),
        (proxy(split, &[])?, forbidden.trim_start_matches("logging.")),
        (kubelet("logging: {sanitization: true}")?, "unknown field `sanitization`"),
        (proxy("logging: {sanitization: true}", &[])?, "unknown field `sanitization`"),
    ] {
        let text = String::from_utf8(out.stderr)?;
        ensure!(text.contains(why), "{why}: {text}");
    }
    Ok(())
}

#[test]
fn a_server_logs_as_it_is_told() -> Result<()> {
    let told = |flags: &[&str]| -> Result<String> {
        let dir = tempfile::tempdir()?;
        let log = dir.path().join("log");
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut command = Server::command("kube-apiserver", free_port()?, dir.path(), &flags);
        // Every frame is told of there.
        command
            .env("FERROKUBE_LOG", "warn,h2=trace")
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?);
        let mut server = command.spawn()?;
        let kubeconfig = dir.path().join("kubeconfig");
        let ready = eventually("the API server is ready", || {
            let kubectl = Command::new("kubectl")
                .args(["get", "--raw=/readyz", "--kubeconfig"])
                .arg(&kubeconfig)
                .output()?;
            Ok(kubectl.status.success().then_some(()))
        });
        server.kill()?;
        server.wait()?;
        ready?;
        Ok(std::fs::read_to_string(&log)?)
    };
    let text = told(&["-v=4"])?;
    let klog = with_klogs_header(&text);
    ensure!(klog > 0, "{text}");
    let json = told(&["-v=4", "--logging-format=json"])?;
    let all = lines(json.as_bytes())?;
    let said = all.iter().find(|line| line["msg"].as_str().is_some_and(|m| m.starts_with("API server: ")));
    ensure!(said.is_some_and(|line| line["v"] == json!(0)), "{json}");
    ensure!(all.iter().any(|line| line["v"] == json!(5)), "{json}");
    Ok(())
}

/// How many lines have klog's header: `I0102 15:04:05.678901    1234 file.rs:39] "message"`.
fn with_klogs_header(text: &str) -> usize {
    let has_header = |line: &&str| {
        let Some((head, rest)) = line.split_once("] \"") else { return false };
        let words: Vec<&str> = head.split_whitespace().collect();
        let [date, time, process, place] = *words else { return false };
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let place = place.split_once(".rs:").is_some_and(|(file, line)| !file.is_empty() && digits(line));
        date.len() == 5
            && date.starts_with(['I', 'W', 'E'])
            && digits(&date[1..])
            && time.len() == 15
            && digits(process)
            && place
            && rest.contains('"')
    };
    text.lines().filter(has_header).count()
}
