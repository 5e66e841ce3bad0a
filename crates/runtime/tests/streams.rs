//! Exec, attach and port-forward at the URLs that CRI gives out.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use cri::runtime as pb;
use streaming::remotecommand::decode_result;
use streaming::spdy::{Connection, Role, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{RUNC, Runtime, container};

/// Follows a URL to SPDY on the host's own network.
async fn follow(runtime: &Runtime, url: &str, protocol: &str) -> Result<Connection> {
    let uri: http::Uri = url.parse()?;
    let authority = uri.authority().context("no authority")?.as_str().to_owned();
    // The server listens on the host's loopback: a socket of that network is made there.
    let address: std::net::SocketAddr = authority.parse()?;
    let tcp = runtime.host.inside()?.within(|| Ok(std::net::TcpStream::connect(address)?))?;
    tcp.set_nonblocking(true)?;
    let mut tcp = tokio::net::TcpStream::from_std(tcp)?;
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: {authority}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n\r\n",
        uri.path()
    );
    tcp.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let byte = tcp.read_u8().await?;
        answer.push(byte);
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    ensure!(text.starts_with("HTTP/1.1 101"), "{text}");
    Ok(Connection::start(tcp, Role::Client, Bytes::new()).0)
}

async fn open(connection: &Connection, headers: &[(&str, &str)]) -> Result<Stream> {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Ok(connection.open(headers).await?)
}

async fn all(stream: &mut Stream) -> String {
    let mut text = Vec::new();
    while let Ok(Some(piece)) = stream.read().await {
        text.extend_from_slice(&piece);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_with_its_streams() -> Result<()> {
    has_streams(Runtime::start("exec").await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_with_its_streams_by_another_runtime() -> Result<()> {
    has_streams(Runtime::start_with("exec-runc", "runc", &RUNC).await?).await
}

async fn has_streams(runtime: Runtime) -> Result<()> {
    let (_, id) = runtime.script("exec", "sleep 1000").await?;
    let request = pb::ExecRequest {
        container_id: id.clone(),
        cmd: ["sh", "-c", "cat; echo err >&2; exit 6"].map(str::to_owned).to_vec(),
        stdin: true,
        stdout: true,
        stderr: true,
        tty: false,
    };
    let url = runtime.cri().exec(request).await?.into_inner().url;
    let connection = follow(&runtime, &url, "v4.channel.k8s.io").await?;
    let mut error = open(&connection, &[("streamtype", "error")]).await?;
    let mut stdin = open(&connection, &[("streamtype", "stdin")]).await?;
    let mut stdout = open(&connection, &[("streamtype", "stdout")]).await?;
    let mut stderr = open(&connection, &[("streamtype", "stderr")]).await?;
    stdin.write(Bytes::from_static(b"hello")).await?;
    stdin.close().await?;
    assert_eq!(all(&mut stdout).await, "hello");
    assert_eq!(all(&mut stderr).await, "err\n");
    let result = decode_result(all(&mut error).await.as_bytes());
    assert_eq!(result, Err(streaming::remotecommand::CommandError::Exit(6)));
    assert!(follow(&runtime, &url, "v4.channel.k8s.io").await.is_err(), "a URL is good once");
    let cmd = vec!["nosuch".to_owned()];
    let request = pb::ExecRequest { container_id: id.clone(), cmd, stdout: true, ..Default::default() };
    let url = runtime.cri().exec(request).await?.into_inner().url;
    let connection = follow(&runtime, &url, "v4.channel.k8s.io").await?;
    let mut error = open(&connection, &[("streamtype", "error")]).await?;
    let _stdout = open(&connection, &[("streamtype", "stdout")]).await?;
    let why = "Internal error occurred: error executing command in container: failed to exec in container: \
               OCI runtime exec failed: exec failed: unable to start container process: \
               exec: \"nosuch\": executable file not found in $PATH";
    let result = decode_result(all(&mut error).await.as_bytes());
    assert_eq!(result, Err(streaming::remotecommand::CommandError::Failed(why.to_owned())));
    let late = pb::ExecSyncRequest { container_id: id, cmd: vec!["sleep".into(), "100".into()], timeout: 1 };
    let late = runtime.cri().exec_sync(late).await.map_err(|status| status.code());
    assert_eq!(late.err(), Some(tonic::Code::DeadlineExceeded));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_a_size() -> Result<()> {
    has_terminal(Runtime::start("tty").await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_of_another_runtime_has_a_size() -> Result<()> {
    has_terminal(Runtime::start_with("tty-runc", "runc", &RUNC).await?).await
}

async fn has_terminal(runtime: Runtime) -> Result<()> {
    let (_, id) = runtime.script("tty", "sleep 1000").await?;
    let request = pb::ExecRequest {
        container_id: id,
        cmd: ["sh", "-c", "until [ \"$(stty size)\" = '24 80' ]; do sleep 0.1; done; echo sized; tty"]
            .map(str::to_owned)
            .to_vec(),
        stdout: true,
        tty: true,
        ..Default::default()
    };
    let url = runtime.cri().exec(request).await?.into_inner().url;
    let connection = follow(&runtime, &url, "v5.channel.k8s.io").await?;
    let _error = open(&connection, &[("streamtype", "error")]).await?;
    let mut stdout = open(&connection, &[("streamtype", "stdout")]).await?;
    let mut resize = open(&connection, &[("streamtype", "resize")]).await?;
    resize.write(Bytes::from_static(b"{\"Width\":80,\"Height\":24}")).await?;
    let said = all(&mut stdout).await;
    assert!(said.contains("sized") && said.contains("/dev/pts/"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn attached_to_a_container() -> Result<()> {
    has_input(Runtime::start("attach").await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn attached_to_a_container_of_another_runtime() -> Result<()> {
    has_input(Runtime::start_with("attach-runc", "runc", &RUNC).await?).await
}

async fn has_input(runtime: Runtime) -> Result<()> {
    let pod = runtime.pod("attach");
    let sandbox = runtime.sandbox(&pod).await?;
    let mut config = container("cat; exit 9");
    (config.stdin, config.stdin_once) = (true, true);
    let id = runtime.container(&sandbox, &pod, config).await?;
    let request =
        pb::AttachRequest { container_id: id.clone(), stdin: true, stdout: true, stderr: true, tty: false };
    let url = runtime.cri().attach(request).await?.into_inner().url;
    let connection = follow(&runtime, &url, "v4.channel.k8s.io").await?;
    let _error = open(&connection, &[("streamtype", "error")]).await?;
    let mut stdin = open(&connection, &[("streamtype", "stdin")]).await?;
    let mut stdout = open(&connection, &[("streamtype", "stdout")]).await?;
    let _stderr = open(&connection, &[("streamtype", "stderr")]).await?;
    stdin.write(Bytes::from_static(b"there and back\n")).await?;
    let first = stdout.read().await?.context("nothing came")?;
    assert_eq!(first, Bytes::from_static(b"there and back\n"));
    stdin.close().await?;
    assert_eq!(runtime.ended(&id).await?.exit_code, 9, "its input ended once");
    assert!(runtime.log("attach")?.contains(&"stdout F there and back".to_owned()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_input_stays_open_lets_its_client_go() -> Result<()> {
    let runtime = Runtime::start("stays").await?;
    let pod = runtime.pod("stays");
    let sandbox = runtime.sandbox(&pod).await?;
    for (name, tty, stdin_once) in [("open", false, false), ("terminal", true, true)] {
        let mut config = container("cat");
        config.metadata = Some(pb::ContainerMetadata { name: name.into(), attempt: 0 });
        (config.stdin, config.stdin_once, config.tty) = (true, stdin_once, tty);
        let id = runtime.container(&sandbox, &pod, config).await?;
        for input in ["first\n", "second\n"] {
            let container_id = id.clone();
            let request = pb::AttachRequest { container_id, stdin: true, stdout: true, stderr: false, tty };
            let url = runtime.cri().attach(request).await?.into_inner().url;
            let connection = follow(&runtime, &url, "v4.channel.k8s.io").await?;
            let mut error = open(&connection, &[("streamtype", "error")]).await?;
            let mut stdin = open(&connection, &[("streamtype", "stdin")]).await?;
            let mut stdout = open(&connection, &[("streamtype", "stdout")]).await?;
            let _resize =
                if tty { Some(open(&connection, &[("streamtype", "resize")]).await?) } else { None };
            stdin.write(Bytes::from_static(input.as_bytes())).await?;
            stdin.close().await?;
            let said = all(&mut stdout).await;
            assert!(said.contains(input.trim()), "{name}: {said:?}");
            assert_eq!(decode_result(all(&mut error).await.as_bytes()), Ok(()), "{name}");
        }
        assert_eq!(runtime.status(&id).await?.state(), pb::ContainerState::ContainerRunning, "{name}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_a_pod() -> Result<()> {
    let runtime = Runtime::start("forward").await?;
    let (sandbox, id) = runtime.script("forward", "nc -ll -p 8080 -e cat").await?;
    runtime
        .until("it listens", async || Ok(runtime.exec(&id, &["netstat", "-ltn"]).await?.contains(":8080 ")))
        .await?;
    let request = pb::PortForwardRequest { pod_sandbox_id: sandbox, port: Vec::new() };
    let url = runtime.cri().port_forward(request).await?.into_inner().url;
    let connection = follow(&runtime, &url, "portforward.k8s.io").await?;
    let pair = async |port: &str, request: &str| {
        let of = [("port", port), ("requestid", request)];
        let error = open(&connection, &[&[("streamtype", "error")][..], &of].concat()).await?;
        let data = open(&connection, &[&[("streamtype", "data")][..], &of].concat()).await?;
        anyhow::Ok((error, data))
    };
    let (_error, mut data) = pair("8080", "0").await?;
    data.write(Bytes::from_static(b"hello")).await?;
    assert_eq!(data.read().await?.context("nothing came")?, Bytes::from_static(b"hello"));
    let (mut error, _data) = pair("9999", "1").await?;
    let said = all(&mut error).await;
    assert!(said.contains("error forwarding port 9999") && said.contains("refused"), "{said}");
    Ok(())
}
