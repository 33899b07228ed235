//! `flagperf scaling`: a case on several numbers of devices in one table.

use std::process::ExitCode;

use clap::{Args, ValueHint};
use flagperf_comparison::{ScalingRow, ScalingTable};

use super::compare::{print_not_compared, read_side};
use super::output::{print_mistake, print_result};
use flagperf_core::exit_code;
use flagperf_core::text::{escape_json, one_line};
use flagperf_report::{columns, digits, duration, headed_table, percent};

#[derive(Debug, Args)]
pub(super) struct ScalingArguments {
    /// Folders of results of one case, each on another number of devices; the first is what the others are compared with
    #[arg(required = true, num_args = 2.., value_hint = ValueHint::AnyPath)]
    results: Vec<String>,
    /// Compare results that are not of the same work, too
    #[arg(long)]
    anyway: bool,
    /// Print the table as JSON
    #[arg(long)]
    json: bool,
}

/// Prints how a case scales.
pub(super) fn scaling(arguments: &ScalingArguments) -> anyhow::Result<ExitCode> {
    let mut sides = Vec::new();
    for path in &arguments.results {
        match read_side(path) {
            Ok(side) => sides.push(side),
            Err(message) => return Ok(print_mistake(&message)),
        }
    }
    let table = match ScalingTable::of(&sides, arguments.anyway) {
        Ok(table) => table,
        Err(error) => return Ok(print_not_compared(&error)),
    };
    let text = match arguments.json {
        true => format!("{}\n", escape_json(&serde_json::to_string_pretty(&table)?)),
        false => scaling_text(&table, columns()),
    };
    Ok(print_result(&text, exit_code::OK))
}

fn scaling_text(table: &ScalingTable, columns: u16) -> String {
    let head = ["devices", "batch", "samples/s", "efficiency", "not overlapped", "slowest alone", "memory", "energy"];
    let mut text =
        headed_table(std::iter::once(head.map(str::to_owned)).chain(table.rows.iter().map(row)).collect(), columns);
    text += "\n";
    for (index, ScalingRow { communication, slowest, .. }) in table.rows.iter().enumerate() {
        let (Some(group), Some(slowest)) = (communication, slowest) else { continue };
        let (core, local) = (duration(group.core_s), duration(group.local_core_s));
        let row = index + 1;
        text += &format!(
            "row {row}: a step takes {core}, and {local} without exchange; the slowest is `{}`\n",
            one_line(slowest)
        );
    }
    text += "efficiency: samples/s for each device, by that of the first row; batch: samples on each device\n";
    text
}

fn row(row: &ScalingRow) -> [String; 8] {
    let unknown = || if row.devices == 1 { "-" } else { "unknown" }.to_owned();
    [
        row.devices.to_string(),
        row.batch_size.to_string(),
        format!("{:.1}", row.throughput_samples_per_s),
        percent(row.efficiency),
        row.communication.map_or_else(unknown, |group| percent(group.exposed_share)),
        row.communication
            .map_or_else(unknown, |group| format!("rank {} +{}", group.slowest_rank, percent(group.slower_by))),
        row.device_memory_bytes_max
            .map_or_else(|| "unknown".to_owned(), |bytes| format!("{} GB", digits(bytes.0 as f64 / 1e9))),
        row.device_energy_j_per_sample.map_or_else(|| "unknown".to_owned(), |energy| format!("{} J", digits(energy))),
    ]
}
