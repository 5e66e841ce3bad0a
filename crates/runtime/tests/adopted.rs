//! The runtime is killed, and its next process takes everything over as it is.

use anyhow::Result;
use cri::runtime as pb;

use crate::support::Runtime;

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_is_killed_loses_nothing() -> Result<()> {
    let mut runtime = Runtime::start("killed").await?;
    let (sandbox, stays) = runtime
        .script("stays", "echo first; while :; do sleep 0.1; [ -f /go ] && echo second && rm /go; done")
        .await?;
    let (_, ends) = runtime.script("later", "until [ -f /tmp/go ]; do sleep 0.1; done; exit 7").await?;
    let (_, before) = runtime.script("before", "exit 4").await?;
    let ended = runtime.ended(&before).await?;
    // It ends while nobody looks.
    runtime.exec(&ends, &["sh", "-c", "(sleep 1; touch /tmp/go) >/dev/null 2>&1 &"]).await?;
    runtime.kill()?;
    let pid = runtime.host.run("sh", &["-c", "grep -l first /proc/[0-9]*/cmdline 2>/dev/null | wc -l"])?;
    assert_ne!(pid.trim(), "0", "the container runs on");
    runtime.run().await?;
    let status = runtime.status(&stays).await?;
    assert_eq!(status.state(), pb::ContainerState::ContainerRunning);
    assert_eq!(runtime.status(&before).await?, ended);
    assert_eq!(runtime.ended(&ends).await?.exit_code, 7);
    runtime.exec(&stays, &["touch", "/go"]).await?;
    runtime
        .until("the log goes on", async || Ok(runtime.log("stays")?.contains(&"stdout F second".to_owned())))
        .await?;
    for _ in 0..3 {
        runtime.kill()?;
        runtime.run().await?;
        assert_eq!(runtime.status(&stays).await?.state(), pb::ContainerState::ContainerRunning);
    }
    let remove = pb::RemovePodSandboxRequest { pod_sandbox_id: sandbox };
    runtime.cri().remove_pod_sandbox(remove).await?;
    assert!(runtime.status(&stays).await.is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_what_happens() -> Result<()> {
    let runtime = Runtime::start("events").await?;
    let mut events = runtime.cri().get_container_events(pb::GetEventsRequest {}).await?.into_inner();
    let (sandbox, id) = runtime.script("events", "exit 0").await?;
    runtime.ended(&id).await?;
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let event = events.message().await?.unwrap();
        let whose = if event.container_id == sandbox { "sandbox" } else { "container" };
        assert!(event.pod_sandbox_status.is_some());
        seen.push((whose, event.container_event_type()));
    }
    use pb::ContainerEventType::*;
    assert_eq!(seen[..2], [("sandbox", ContainerCreatedEvent), ("sandbox", ContainerStartedEvent)]);
    assert_eq!(seen[2], ("container", ContainerCreatedEvent));
    // The container may end before its start is told.
    for kind in [ContainerStartedEvent, ContainerStoppedEvent] {
        assert!(seen[3..].contains(&("container", kind)), "{seen:?}");
    }
    let stop = pb::StopPodSandboxRequest { pod_sandbox_id: sandbox.clone() };
    runtime.cri().stop_pod_sandbox(stop.clone()).await?;
    runtime.cri().stop_pod_sandbox(stop).await?;
    let remove = pb::RemovePodSandboxRequest { pod_sandbox_id: sandbox.clone() };
    runtime.cri().remove_pod_sandbox(remove).await?;
    let mut seen = Vec::new();
    while seen.last() != Some(&("sandbox", ContainerDeletedEvent)) {
        let event = events.message().await?.unwrap();
        let whose = if event.container_id == sandbox { "sandbox" } else { "container" };
        seen.push((whose, event.container_event_type()));
    }
    let expected = [
        ("sandbox", ContainerStoppedEvent),
        ("container", ContainerDeletedEvent),
        ("sandbox", ContainerDeletedEvent),
    ];
    assert_eq!(seen, expected);
    Ok(())
}
