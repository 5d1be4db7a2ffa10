//! What the recorder takes from a load. Blocks of three runs in random order: one beside the recorder, two without
//! it. The two without, one over the other, are the floor: what differs though nothing does.

use crate::options::Options;
use crate::recorder::Recorder;
use crate::statistics::{Ratios, median};
use crate::{Bench, Result, SCALE, USUAL};
use backwater_lab::workloads::{Arrivals, LoadResult, LoadSpec, Tpcb};
use rand::seq::SliceRandom;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const WARMUP: Duration = Duration::from_secs(1);
const CLIENTS: usize = 8;
/// The open loop's share of what the server can do.
const SPARE_SHARE: f64 = 0.25;

/// A load, and the figures that are compared.
struct Load {
    name: String,
    rate_per_s: Option<f64>,
    figures: Vec<Figure>,
}

/// One figure of a run.
#[derive(Clone, Copy)]
struct Figure {
    name: &'static str,
    of: fn(&LoadResult) -> f64,
    /// Whether less of it is worse.
    less_is_worse: bool,
}

const THROUGHPUT: Figure = Figure { name: "transactions/s", of: LoadResult::tps, less_is_worse: true };
const SERVICE: Figure =
    Figure { name: "mean service time, ms", of: |result| result.service.mean_ms(), less_is_worse: false };

/// The three runs of a block.
struct Block {
    with: LoadResult,
    without: [LoadResult; 2],
}

impl Block {
    fn against_floor(&self, figure: Figure) -> (f64, f64) {
        let [one, other] = self.without.each_ref().map(figure.of);
        ((figure.of)(&self.with) / (one * other).sqrt(), one / other)
    }
}

pub(crate) fn measure(bench: &Bench, program: &Path, options: &Options) -> Result<()> {
    // Fills the buffers, and says what the server can do.
    let full = run(bench, None, options.run_length)?.tps();
    let rate = (full * SPARE_SHARE / 10.0).round().max(1.0) * 10.0;
    let loads = [
        Load { name: format!("open loop, {rate}/s"), rate_per_s: Some(rate), figures: vec![THROUGHPUT, SERVICE] },
        Load { name: "saturated".to_owned(), rate_per_s: None, figures: vec![THROUGHPUT] },
    ];
    println!(
        "\nLoss: TPC-B by {CLIENTS} clients, {} blocks of three runs of {:.0} s in random order, one beside the\n\
         recorder, two without. Ratio: with / geometric mean of the two without; floor: one without / the other.\n\
         'at most': one-sided 95 % t-interval of the mean logarithm of the ratios; the floor's, either way round.\n",
        options.blocks,
        options.run_length.as_secs_f64()
    );
    let head = ["without", "ratio", "loss", "at most", "floor", "at most"];
    println!("{:<18} {:<22} {}", "", "", head.map(|word| format!("{word:>8}")).join(" "));
    for load in loads {
        let blocks = blocks(bench, program, &load, options)?;
        for figure in &load.figures {
            tell(&load.name, *figure, &blocks);
        }
    }
    Ok(())
}

fn blocks(bench: &Bench, program: &Path, load: &Load, options: &Options) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    for _ in 0..options.blocks {
        let mut order = [true, false, false];
        order.shuffle(&mut rand::rng());
        let (mut with, mut without) = (None, Vec::new());
        for recorded in order {
            let recorder = if recorded {
                Some(Recorder::start(bench, program, &options.with, "loss", options.sessions_every.unwrap_or(USUAL))?)
            } else {
                None
            };
            let result = run(bench, load.rate_per_s, options.run_length)?;
            match recorder {
                Some(recorder) => {
                    let out = recorder.out.clone();
                    recorder.stop(bench)?;
                    std::fs::remove_dir_all(out)?;
                    with = Some(result);
                }
                None => without.push(result),
            }
        }
        let without = without.try_into().map_err(|_| "a block has two runs without the recorder")?;
        blocks.push(Block { with: with.ok_or("a block has a run with the recorder")?, without });
    }
    Ok(blocks)
}

fn run(bench: &Bench, rate_per_s: Option<f64>, duration: Duration) -> Result<LoadResult> {
    let seed = rand::random();
    let spec = LoadSpec { clients: CLIENTS, rate_per_s, arrivals: Arrivals::Even, warmup: WARMUP, duration, seed };
    bench.drive(&Tpcb::new(SCALE)?, &spec, &AtomicBool::new(false))
}

fn tell(load: &str, figure: Figure, blocks: &[Block]) {
    let (ratios, floor): (Vec<f64>, Vec<f64>) = blocks.iter().map(|block| block.against_floor(figure)).unzip();
    let (ratios, floor) = (Ratios(ratios), Ratios(floor));
    let loss = |ratio: f64| if figure.less_is_worse { 1.0 - ratio } else { ratio - 1.0 };
    let worst = if figure.less_is_worse { ratios.at_least() } else { ratios.at_most() };
    let floor_at_most = floor.at_most().max(1.0 / floor.at_least()) - 1.0;
    let without: Vec<f64> = blocks.iter().flat_map(|block| block.without.each_ref().map(figure.of)).collect();
    println!(
        "{load:<18} {:<22} {:>8.3} {:>8.4} {:>6.2} % {:>6.2} % {:>8.4} {:>6.2} %",
        figure.name,
        median(&without),
        ratios.median(),
        loss(ratios.median()) * 100.0,
        loss(worst) * 100.0,
        floor.median(),
        floor_at_most * 100.0
    );
    println!(
        "{:<18} a loss of less than {:.2} % cannot be told from none here: so much do the runs scatter",
        "",
        ratios.margin().max(floor.margin()) * 100.0
    );
}
