//! `flagperf scaling`: a case on several numbers of devices in one table.

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use flagperf_comparison::{ScalingRow, ScalingTable, Side};

use super::compare::{print_not_compared, read_side};
use super::output::{counted, print_mistake, print_result};
use flagperf_core::exit_code;
use flagperf_core::regular_file::read_regular;
use flagperf_core::run_files::SUMMARY_FILE;
use flagperf_core::text::{escape_json, one_line};
use flagperf_report::{columns, digits, duration, exposed_share_text, headed_table, percent, wrap};
use flagperf_result::{RECORD_BYTES_MAX, Summary};
use flagperf_verify::{Standing, verify_summary};

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
        match read_side(path).and_then(with_summary) {
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

/// Returns results of several devices in the order of their ranks, with their summary, which must follow from them.
fn with_summary(mut side: Side) -> Result<(Side, Option<Summary>), String> {
    let [(first, _), _, ..] = &side.results[..] else { return Ok((side, None)) };
    let folder = first.parent().unwrap_or(Path::new(".")).to_owned();
    let shown = one_line(&side.name).into_owned();
    let report =
        verify_summary(&folder).ok_or_else(|| format!("`{shown}`: there is no {SUMMARY_FILE} of its results"))?;
    if report.standing > Standing::Consistent {
        return Err(format!(
            "`{shown}`: its {SUMMARY_FILE} is {}: `flagperf verify` shows why",
            report.standing.name()
        ));
    }
    let read = read_regular(&folder.join(SUMMARY_FILE), RECORD_BYTES_MAX).map_err(|error| error.to_string());
    let summary: Summary = read.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()))?;
    let rank = |path: &Path| summary.replicas.iter().position(|replica| folder.join(&replica.folder) == path);
    side.results.sort_by_key(|(path, _)| rank(path));
    match side.results.iter().enumerate().find(|(index, (path, _))| rank(path) != Some(*index)) {
        Some((_, (path, _))) => {
            Err(format!("`{}` is none of the results of {SUMMARY_FILE}", one_line(&path.display().to_string())))
        }
        None => Ok((side, Some(summary))),
    }
}

fn scaling_text(table: &ScalingTable, columns: u16) -> String {
    let head = [
        "devices",
        "batch",
        "samples/s",
        "efficiency",
        "not overlapped",
        "slowest alone",
        "memory",
        "energy",
        "verdict",
    ];
    let mut text =
        headed_table(std::iter::once(head.map(str::to_owned)).chain(table.rows.iter().map(row)).collect(), columns);
    text += "\n";
    for (index, row) in table.rows.iter().enumerate() {
        let name = format!("row {} ({})", index + 1, counted(row.devices as usize, "device"));
        let mut notes = Vec::new();
        if let (Some(group), Some(slowest)) = (&row.communication, &row.slowest) {
            let (core, local) = (duration(group.core_s), duration(group.local_core_s));
            notes.push(format!("a step takes {core}, and {local} without exchange; the slowest is `{slowest}`"));
        }
        notes.extend(row.warnings.iter().map(|warning| format!("warning: {warning}")));
        notes.extend(
            row.differences.iter().map(|difference| {
                format!("differs: {}: {} and {}", difference.what, difference.first, difference.second)
            }),
        );
        let lines = notes.iter().map(|note| wrap(&one_line(&format!("{name}: {note}")), columns.into()) + "\n");
        text.extend(lines);
    }
    let meaning = "efficiency: samples/s for each device, by that of the first row; batch: samples on each device";
    format!("{text}{}\n", wrap(meaning, columns.into()))
}

fn row(row: &ScalingRow) -> [String; 9] {
    let unknown = || if row.devices == 1 { "-" } else { "unknown" }.to_owned();
    [
        row.devices.to_string(),
        row.batch_size.to_string(),
        format!("{:.1}", row.throughput_samples_per_s),
        percent(row.efficiency),
        row.communication.map_or_else(unknown, |group| exposed_share_text(group.exposed_share)),
        row.communication
            .map_or_else(unknown, |group| format!("rank {} +{}", group.slowest_rank, percent(group.slower_by))),
        row.device_memory_bytes_max
            .map_or_else(|| "unknown".to_owned(), |bytes| format!("{} GB", digits(bytes.0 as f64 / 1e9))),
        row.device_energy_j_per_sample.map_or_else(|| "unknown".to_owned(), |energy| format!("{} J", digits(energy))),
        row.validity.name().to_owned(),
    ]
}
