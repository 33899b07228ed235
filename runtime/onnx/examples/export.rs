//! Writes one of the test networks as an ONNX file: `export resnet50 out.onnx [--fp16] [--weights FILE] [--seed N] [--external]`.
//!
//! Used for checks with other tools (the ONNX checker, ONNX Runtime, torchvision).

#[path = "../tests/graphs/networks.rs"]
mod networks;

use std::path::PathBuf;

use flagperf_onnx::{WriteOptions, count, to_f16, write_onnx_with};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "export resnet50|squeeze_excite OUT [--fp16] [--weights FILE] [--seed N] [--external]";
    let (name, out) = arguments.next().zip(arguments.next()).ok_or(usage)?;
    let mut graph = match name.as_str() {
        "resnet50" => networks::resnet50()?,
        "squeeze_excite" => networks::squeeze_excite()?,
        _ => return Err(usage.into()),
    };
    let mut options = WriteOptions::default();
    let mut half = false;
    while let Some(option) = arguments.next() {
        match option.as_str() {
            "--fp16" => half = true,
            "--external" => options.external_above = 0,
            "--seed" => graph.seed_weights(arguments.next().ok_or(usage)?.parse()?),
            "--weights" => graph.load_weights(&PathBuf::from(arguments.next().ok_or(usage)?))?,
            _ => return Err(usage.into()),
        }
    }
    println!("{:?}", count(&graph));
    let graph = if half { to_f16(&graph, &[])? } else { graph };
    for path in write_onnx_with(&graph, &PathBuf::from(out), options)? {
        println!("{}", path.display());
    }
    Ok(())
}
