//! The node ports of a Service: which ones a write asks for, and which it gets.

use super::ranges::{PortSet, TAKEN};

/// The ports that one write takes.
pub(super) struct Operation<'a> {
    ports: &'a mut PortSet,
    dry_run: bool,
    taken: Vec<i64>,
}

impl<'a> Operation<'a> {
    /// A dry run takes nothing: it says which numbers might be given.
    pub(super) fn new(ports: &'a mut PortSet, dry_run: bool) -> Self {
        Self { ports, dry_run, taken: Vec::new() }
    }
    /// Takes a port; upstream's text if that cannot be. A dry run sees only whether it is free, as upstream's.
    pub(super) fn take(&mut self, number: i64) -> Result<(), String> {
        if !self.dry_run {
            self.ports.take(number)?;
        } else if self.taken.contains(&number) || self.ports.has(number) {
            return Err(TAKEN.into());
        }
        self.taken.push(number);
        Ok(())
    }
    /// Takes any port; a dry run counts up from the middle of the usual range.
    pub(super) fn take_any(&mut self) -> Option<i64> {
        let number = if self.dry_run {
            self.taken.iter().copied().max().unwrap_or(32768) + 1
        } else {
            i64::from(self.ports.take_any()?)
        };
        self.taken.push(number);
        Some(number)
    }
    /// The ports that were really taken.
    pub(super) fn taken(self) -> Vec<i64> {
        if self.dry_run { Vec::new() } else { self.taken }
    }
}

/// A port of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) port: i64,
    /// Its node port, 0 for none.
    pub(super) node_port: i64,
}

/// Why a Service gets no node ports.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The one that a port asks for can't be had.
    Wanted { index: usize, number: i64, why: String },
    /// All are taken.
    Full,
}

/// Gives the ports of a new Service their node ports. Those of the same number, which differ in their
/// protocol, share one.
pub(super) fn assign_new(ports: &mut [Port], wants: bool, op: &mut Operation<'_>) -> Result<(), Refused> {
    let mut given: Vec<Port> = Vec::new();
    for index in 0..ports.len() {
        let Port { port, node_port } = ports[index];
        if node_port == 0 && !wants {
            continue;
        }
        let refused = |number: i64| move |why: String| Refused::Wanted { index, number, why };
        match given.iter().find(|g| g.port == port).map(|g| g.node_port) {
            None => {
                let asked = ports.iter().find(|p| p.port == port && p.node_port != 0).map(|p| p.node_port);
                let number = match asked {
                    Some(number) => op.take(number).map(|()| number).map_err(refused(number))?,
                    None => op.take_any().ok_or(Refused::Full)?,
                };
                ports[index].node_port = number;
                given.push(ports[index]);
            }
            Some(number) if node_port == 0 => ports[index].node_port = number,
            Some(number) if node_port == number => {}
            Some(_) => op.take(node_port).map_err(refused(node_port))?,
        }
    }
    Ok(())
}

/// Gives the ports of an updated Service their node ports; those it `had` are its own.
pub(super) fn assign_again(
    ports: &mut [Port],
    wants: bool,
    had: &[i64],
    op: &mut Operation<'_>,
) -> Result<(), Refused> {
    let mut own = had.to_vec();
    for (index, port) in ports.iter_mut().enumerate() {
        let number = port.node_port;
        if number != 0 {
            if !own.contains(&number) {
                op.take(number).map_err(|why| Refused::Wanted { index, number, why })?;
                own.push(number);
            }
        } else if wants {
            port.node_port = op.take_any().ok_or(Refused::Full)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_service() {
        let refused = |index, number, why: &str| Err(Refused::Wanted { index, number, why: why.into() });
        let outside = "provided port is not in the valid range. The range of valid ports is 30000-30099";
        for (dry_run, wants, ports, expected) in [
            // Nothing is taken that nobody wants; what is asked for is.
            (false, false, vec![(80, 0), (443, 30010)], Ok(vec![0, 30010])),
            // One number for both protocols of a port, wherever it is asked for.
            (false, true, vec![(53, 0), (53, 30011)], Ok(vec![30011, 30011])),
            (false, true, vec![(53, 30011), (53, 0), (53, 30012)], Ok(vec![30011, 30011, 30012])),
            (
                false,
                true,
                vec![(53, 30011), (54, 30011)],
                refused(1, 30011, "provided port is already allocated"),
            ),
            (false, true, vec![(53, 30001)], refused(0, 30001, "provided port is already allocated")),
            (false, true, vec![(53, 65536)], refused(0, 65536, outside)),
            (false, true, vec![(53, -1)], refused(0, -1, outside)),
            // A dry run does not look at the range.
            (true, true, vec![(53, 65536), (80, 0)], Ok(vec![65536, 65537])),
            (true, true, vec![(53, 0), (80, 0)], Ok(vec![32769, 32770])),
            (true, true, vec![(53, 30001)], refused(0, 30001, "provided port is already allocated")),
        ] {
            let mut all = PortSet::new(&(30000..=30099));
            all.take(30001).unwrap();
            let mut op = Operation::new(&mut all, dry_run);
            let mut given: Vec<Port> =
                ports.iter().map(|&(port, node_port)| Port { port, node_port }).collect();
            let result = assign_new(&mut given, wants, &mut op);
            assert_eq!(result.map(|()| given.iter().map(|p| p.node_port).collect()), expected, "{ports:?}");
        }
    }

    #[test]
    fn an_updated_service() {
        let mut all = PortSet::new(&(30000..=30099));
        all.take(30001).unwrap();
        let mut op = Operation::new(&mut all, false);
        let mut ports = [(80, 30001), (81, 30002), (82, 0), (81, 30002)]
            .map(|(port, node_port)| Port { port, node_port });
        assert_eq!(assign_again(&mut ports, true, &[30001], &mut op), Ok(()));
        assert_eq!((ports[0].node_port, ports[1].node_port, ports[3].node_port), (30001, 30002, 30002));
        assert!(ports[2].node_port >= 30000 && op.taken().len() == 2);
    }
}
