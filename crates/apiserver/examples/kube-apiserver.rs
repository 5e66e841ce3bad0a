//! The API server alone: `kube-apiserver DATA_DIR PORT KUBECONFIG`.

use std::net::IpAddr;
use std::path::Path;

use component::Shutdown;
use ferrokube_apiserver::standalone::{self, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, port, kubeconfig] = args.as_slice() else {
        return Err("usage: kube-apiserver DATA_DIR PORT KUBECONFIG".into());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let shutdown = Shutdown::new();
        let mut options = Options::new(dir);
        options.bind = IpAddr::from([127, 0, 0, 1]);
        options.port = port.parse()?;
        let started = std::time::Instant::now();
        let running = standalone::start(options, &shutdown).await?;
        running.write_kubeconfig(Path::new(kubeconfig))?;
        eprintln!("ready at {} after {:?}", running.url(), started.elapsed());
        tokio::signal::ctrl_c().await?;
        shutdown.finish().await;
        Ok(())
    })
}
