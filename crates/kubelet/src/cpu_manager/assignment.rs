//! Which processors go together: upstream's `takeByTopology`. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::cpu_set::CpuSet;
use super::topology::{CpuDetails, CpuTopology, Level};

/// Why processors cannot be taken; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TakeError {
    /// There are too few.
    #[error("not enough cpus available to satisfy request: requested={requested}, available={available}")]
    TooFew {
        /// How many are asked for.
        requested: usize,
        /// How many there are.
        available: usize,
    },
    /// Nothing was found although there are enough.
    #[error("failed to allocate cpus")]
    Failed,
    /// Fewer were taken than are asked for.
    #[error("accounting error, not enough CPUs allocated, remaining: {0}")]
    Accounting(isize),
}

/// The order in which single processors are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sorting {
    /// Those of one core after each other.
    Packed,
    /// By their numbers, so that they come from different cores.
    Spread,
}

/// Collects processors of those that are free.
#[derive(Debug)]
pub(super) struct Accumulator<'a> {
    topology: &'a CpuTopology,
    /// The free ones.
    free: CpuDetails,
    /// How many are still needed.
    needed: isize,
    taken: CpuSet,
    sorting: Sorting,
}

impl<'a> Accumulator<'a> {
    pub(super) fn new(topology: &'a CpuTopology, available: &CpuSet, count: usize, sorting: Sorting) -> Self {
        let free = topology.details.keep_only(available);
        Self { topology, free, needed: signed(count), taken: CpuSet::new(), sorting }
    }

    /// Whether a NUMA node holds sockets rather than a socket NUMA nodes.
    fn numa_first(&self) -> bool {
        self.topology.sockets >= self.topology.numas
    }

    /// Sorts parts by how many of their processors are free, then by their numbers.
    fn sorted(&self, parts: BTreeSet<usize>, level: Level) -> Vec<usize> {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for info in self.free.0.values() {
            *counts.entry(info.at(level)).or_default() += 1;
        }
        let mut all: Vec<usize> = parts.into_iter().collect();
        all.sort_by_key(|part| (counts.get(part).copied().unwrap_or_default(), *part));
        all
    }

    /// The parts of a level, those of each part of the level above together.
    fn below(&self, outer: &[usize], above: Level, level: Level) -> Vec<usize> {
        let inside = |part: &usize| self.sorted(self.free.parts_in(level, above, *part), level);
        outer.iter().flat_map(inside).collect()
    }

    /// NUMA nodes with free processors.
    fn numas(&self) -> Vec<usize> {
        if self.numa_first() {
            self.sorted(self.free.parts(Level::Numa), Level::Numa)
        } else {
            self.below(&self.sockets(), Level::Socket, Level::Numa)
        }
    }

    /// Sockets with free processors.
    fn sockets(&self) -> Vec<usize> {
        if self.numa_first() {
            self.below(&self.numas(), Level::Numa, Level::Socket)
        } else {
            self.sorted(self.free.parts(Level::Socket), Level::Socket)
        }
    }

    /// Shared caches with free processors.
    fn uncores(&self) -> Vec<usize> {
        self.below(&self.numas(), Level::Numa, Level::Uncore)
    }

    /// Cores with free processors.
    fn cores(&self) -> Vec<usize> {
        if self.numa_first() {
            self.below(&self.sockets(), Level::Socket, Level::Core)
        } else {
            self.below(&self.numas(), Level::Numa, Level::Core)
        }
    }

    /// Free processors in the order in which single ones are taken.
    pub(super) fn cpus(&self) -> Vec<usize> {
        let (parts, level) = match self.sorting {
            Sorting::Packed => (self.cores(), Level::Core),
            Sorting::Spread => (self.sockets(), Level::Socket),
        };
        parts.iter().flat_map(|part| self.free.cpus_in(level, *part).iter().collect::<Vec<_>>()).collect()
    }

    /// Parts all of whose processors are free.
    pub(super) fn free_parts(&self, level: Level) -> Vec<usize> {
        let topology = self.topology;
        let (all, whole): (Vec<usize>, Option<usize>) = match level {
            Level::Numa => (self.numas(), None),
            Level::Socket => (self.sockets(), Some(topology.per_socket())),
            Level::Uncore => (self.uncores(), None),
            Level::Core => (self.cores(), Some(topology.per_core())),
        };
        // DIFFERENCE: upstream takes all cores and all sockets for equal. Where they are not, it takes a core for free of
        // which a processor is in use.
        let is_free = |part: &usize| {
            let all = topology.details.count_in(level, *part);
            self.free.count_in(level, *part) == all && whole.is_none_or(|whole| whole == all)
        };
        all.into_iter().filter(is_free).collect()
    }

    pub(super) fn take(&mut self, cpus: &CpuSet) {
        self.taken = self.taken.union(cpus);
        self.free.0.retain(|cpu, _| !cpus.contains(*cpu));
        self.needed -= signed(cpus.len());
    }

    /// Takes whole parts of a level while at least so many are needed.
    fn take_whole(&mut self, level: Level) {
        for part in self.free_parts(level) {
            let cpus = self.topology.details.cpus_in(level, part);
            if self.needed >= signed(cpus.len()) {
                self.take(&cpus);
            }
        }
    }

    /// Takes all that is still needed from one cache, if it has as much.
    fn take_part_of_uncore(&mut self, uncore: usize) {
        let per_core = signed(self.topology.per_core()).max(1);
        let cores = usize::try_from((self.needed + per_core - 1) / per_core).unwrap_or_default();
        let cores: Vec<usize> =
            self.free.parts_in(Level::Core, Level::Uncore, uncore).into_iter().take(cores).collect();
        let mut cpus = self.free.cpus_in_any(Level::Core, &cores);
        if self.needed % 2 != 0 && per_core > 1 && signed(cpus.len()) > self.needed {
            // Of the last core only some are needed.
            let most = cpus.len() - 1;
            cpus = cpus.iter().take(most).collect();
        }
        if signed(cpus.len()) == self.needed {
            self.take(&cpus);
        }
    }

    fn take_by_uncore(&mut self) {
        let whole = signed(self.topology.per_uncore());
        for uncore in self.uncores() {
            if self.needed >= whole {
                self.take_whole(Level::Uncore);
            }
            if self.is_satisfied() {
                return;
            }
            self.take_part_of_uncore(uncore);
            if self.is_satisfied() {
                return;
            }
        }
    }

    fn take_single(&mut self) {
        let single = usize::try_from(self.needed).unwrap_or_default();
        for cpu in self.cpus().into_iter().take(single) {
            self.take(&std::iter::once(cpu).collect());
        }
    }

    pub(super) fn is_satisfied(&self) -> bool {
        self.needed < 1
    }

    pub(super) fn is_failed(&self) -> bool {
        self.needed > signed(self.free.0.len())
    }

    /// The least and the largest number of NUMA nodes from which groups of `group` processors may come.
    fn range_of_numas(&self, group: usize) -> (usize, usize) {
        let up = |n: usize, by: usize| n.div_ceil(by.max(1));
        let groups = up(self.topology.details.0.len(), group);
        let per_numa = up(groups, self.topology.details.parts(Level::Numa).len()).max(1);
        let needed = up(usize::try_from(self.needed).unwrap_or_default(), group);
        (up(needed, per_numa), needed.min(self.free.parts(Level::Numa).len()))
    }
}

fn signed(n: usize) -> isize {
    isize::try_from(n).unwrap_or(isize::MAX)
}

/// Takes processors that are near to each other, from as few parts of the machine as can be.
///
/// # Errors
/// There are too few.
pub(crate) fn packed(
    topology: &CpuTopology,
    available: &CpuSet,
    count: usize,
    sorting: Sorting,
    by_uncore: bool,
) -> Result<CpuSet, TakeError> {
    let mut all = Accumulator::new(topology, available, count, sorting);
    if all.is_satisfied() {
        return Ok(all.taken);
    }
    if all.is_failed() {
        return Err(TakeError::TooFew { requested: count, available: available.len() });
    }
    let levels = if all.numa_first() { [Level::Numa, Level::Socket] } else { [Level::Socket, Level::Numa] };
    for level in levels {
        all.take_whole(level);
        if all.is_satisfied() {
            return Ok(all.taken);
        }
    }
    if by_uncore {
        all.take_by_uncore();
        if all.is_satisfied() {
            return Ok(all.taken);
        }
    }
    if sorting == Sorting::Packed {
        all.take_whole(Level::Core);
        if all.is_satisfied() {
            return Ok(all.taken);
        }
    }
    all.take_single();
    if all.is_satisfied() { Ok(all.taken) } else { Err(TakeError::Failed) }
}

/// How unevenly processors are left over NUMA nodes, to three places.
fn deviation(left: &BTreeMap<usize, usize>) -> f64 {
    let rounded = |x: f64| (x * 1000.0).round() / 1000.0;
    let count = left.len() as f64;
    let mean = rounded(left.values().map(|n| *n as f64).sum::<f64>() / count);
    let sum: f64 = left.values().map(|n| (*n as f64 - mean).powi(2)).sum();
    rounded((sum / count).sqrt())
}

/// Calls `each` with every choice of `k` of `all`, in order, until it breaks.
fn combinations(
    all: &[usize],
    k: usize,
    each: &mut dyn FnMut(&[usize]) -> ControlFlow<()>,
) -> ControlFlow<()> {
    fn choose(
        all: &[usize],
        k: usize,
        chosen: &mut Vec<usize>,
        each: &mut dyn FnMut(&[usize]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if k == 0 {
            return each(chosen);
        }
        for (i, one) in all.iter().enumerate().take((all.len() + 1).saturating_sub(k)) {
            chosen.push(*one);
            let flow = choose(&all[i + 1..], k - 1, chosen, each);
            chosen.pop();
            flow?;
        }
        ControlFlow::Continue(())
    }
    if k < 1 { ControlFlow::Continue(()) } else { choose(all, k, &mut Vec::with_capacity(k), each) }
}

/// A choice of NUMA nodes, those of them that give the rest, and how evenly processors are left.
#[derive(Debug, Clone)]
struct Balance {
    score: f64,
    numas: Vec<usize>,
    rest: Vec<usize>,
}

/// Processors that are asked for, in groups.
#[derive(Debug, Clone, Copy)]
struct Asked {
    count: usize,
    group: usize,
}

impl Asked {
    /// How many each of `numas` NUMA nodes gives before the rest is given.
    fn share(self, numas: usize) -> usize {
        self.count / numas / self.group * self.group
    }
}

/// Judges a choice of NUMA nodes; none if they cannot give what is asked for evenly.
fn balance(acc: &Accumulator<'_>, all: &[usize], numas: &[usize], asked: Asked) -> Option<Balance> {
    let Asked { count, group } = asked;
    let free = |numa: usize| acc.free.count_in(Level::Numa, numa);
    let total: usize = numas.iter().map(|n| free(*n)).sum();
    let groups: usize = numas.iter().map(|n| free(*n) / group).sum();
    let share = asked.share(numas.len());
    if total < count || groups * group < count || numas.iter().any(|n| free(*n) < share) {
        return None;
    }
    let mut left: BTreeMap<usize, usize> = all.iter().map(|n| (*n, free(*n))).collect();
    for numa in numas {
        *left.entry(*numa).or_default() -= share;
    }
    let rest = count - share * numas.len();
    if rest == 0 {
        return Some(Balance { score: deviation(&left), numas: numas.to_vec(), rest: Vec::new() });
    }
    let giving: Vec<usize> = numas.iter().copied().filter(|n| left[n] >= group).collect();
    let mut best: Option<Balance> = None;
    for k in (1..=giving.len()).rev() {
        let _ = combinations(&giving, k, &mut |subset| {
            let mut left = left.clone();
            let mut rest = rest;
            if subset.iter().map(|n| left[n] / group * group).sum::<usize>() < rest {
                return ControlFlow::Continue(());
            }
            while rest > 0 {
                for numa in subset {
                    if rest > 0
                        && let Some(n) = left.get_mut(numa).filter(|n| **n >= group)
                    {
                        *n -= group;
                        rest = rest.saturating_sub(group);
                    }
                }
            }
            let score = deviation(&left);
            if best.as_ref().is_none_or(|b| score < b.score) {
                best = Some(Balance { score, numas: numas.to_vec(), rest: subset.to_vec() });
            }
            ControlFlow::Continue(())
        });
    }
    best
}

/// Takes processors evenly from NUMA nodes where more than one is needed, in groups of `group`.
///
/// DIFFERENCE: upstream may give the fourth and later NUMA nodes of a choice in the place of others, because its list of
/// the best choice shares memory with the next ones; here the best choice is taken.
///
/// # Errors
/// There are too few.
pub(crate) fn distributed(
    topology: &CpuTopology,
    available: &CpuSet,
    count: usize,
    group: usize,
    sorting: Sorting,
) -> Result<CpuSet, TakeError> {
    let group = group.max(1);
    let pack = |available: &CpuSet, count| packed(topology, available, count, sorting, false);
    if !count.is_multiple_of(group) {
        return pack(available, count);
    }
    let acc = Accumulator::new(topology, available, count, sorting);
    if acc.is_satisfied() {
        return Ok(acc.taken);
    }
    if acc.is_failed() {
        return Err(TakeError::TooFew { requested: count, available: available.len() });
    }
    let asked = Asked { count, group };
    let numas = acc.numas();
    let (least, most) = acc.range_of_numas(group);
    for k in least..=most {
        let mut best: Option<Balance> = None;
        let _ = combinations(&numas, k, &mut |combination| {
            if best.as_ref().is_some_and(|b| b.score <= 0.0) {
                return ControlFlow::Break(());
            }
            if let Some(found) = balance(&acc, &numas, combination, asked)
                && best.as_ref().is_none_or(|b| found.score < b.score)
            {
                best = Some(found);
            }
            ControlFlow::Continue(())
        });
        let Some(best) = best else { continue };
        return give(acc, &best, asked, &pack);
    }
    pack(available, count)
}

/// Takes what a choice of NUMA nodes gives.
fn give(
    mut acc: Accumulator<'_>,
    chosen: &Balance,
    asked: Asked,
    pack: &dyn Fn(&CpuSet, usize) -> Result<CpuSet, TakeError>,
) -> Result<CpuSet, TakeError> {
    let share = asked.share(chosen.numas.len());
    for numa in &chosen.numas {
        let cpus = pack(&acc.free.cpus_in(Level::Numa, *numa), share)?;
        acc.take(&cpus);
    }
    let mut rest = asked.count - share * chosen.numas.len();
    while rest > 0 {
        let before = rest;
        for numa in &chosen.rest {
            let free = acc.free.cpus_in(Level::Numa, *numa);
            if rest > 0 && free.len() >= asked.group {
                let cpus = pack(&free, asked.group)?;
                acc.take(&cpus);
                rest = rest.saturating_sub(asked.group);
            }
        }
        if rest == before {
            break;
        }
    }
    if acc.needed == 0 { Ok(acc.taken) } else { Err(TakeError::Accounting(acc.needed)) }
}
