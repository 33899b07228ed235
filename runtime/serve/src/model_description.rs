//! Describes a model as the protocols do: its metadata, its configuration and its statistics.

use super::datatype::config_type;
use super::messages::model_instance_group::Kind;
use super::messages::model_metadata_response::TensorMetadata;
use super::messages::{
    InferBatchStatistics, InferStatistics, ModelConfig, ModelDynamicBatching, ModelInput, ModelInstanceGroup,
    ModelMetadataResponse, ModelOutput, ModelStatistics, StatisticDuration,
};
use super::model::Model;
use super::signature::Port;
use super::statistics::{BatchTotals, Total};
use super::store::MODEL_FILE;

/// The engine is the platform: `rten_onnx`.
fn platform(model: &Model) -> String {
    format!("{}_onnx", model.source().engine.engine)
}

/// Returns the metadata of a model.
pub fn model_metadata(model: &Model, versions: impl Iterator<Item = u64>) -> ModelMetadataResponse {
    let tensor = |port: &Port| TensorMetadata {
        name: port.name.clone(),
        datatype: port.spec.dtype.kserve_name().to_owned(),
        shape: port.protocol_shape(),
    };
    ModelMetadataResponse {
        name: model.source().name.clone(),
        versions: versions.map(|version| version.to_string()).collect(),
        platform: platform(model),
        inputs: model.signature().inputs.iter().map(tensor).collect(),
        outputs: model.signature().outputs.iter().map(tensor).collect(),
    }
}

/// Returns the configuration of a model in the form of Triton's. If requests are joined, shapes are those of one row.
pub fn model_config(model: &Model) -> ModelConfig {
    let (source, signature) = (model.source(), model.signature());
    let settings = &source.settings;
    let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    let dims = |port: &Port| port.protocol_shape().split_off(usize::from(settings.max_batch_size > 0));
    let input = |port: &Port| ModelInput {
        name: port.name.clone(),
        data_type: config_type(port.spec.dtype).into(),
        dims: dims(port),
    };
    let output = |port: &Port| ModelOutput {
        name: port.name.clone(),
        data_type: config_type(port.spec.dtype).into(),
        dims: dims(port),
        label_filename: settings.labels.clone().unwrap_or_default(),
    };
    ModelConfig {
        name: source.name.clone(),
        platform: platform(model),
        backend: source.engine.engine.clone(),
        max_batch_size: number(settings.max_batch_size),
        input: signature.inputs.iter().map(input).collect(),
        output: signature.outputs.iter().map(output).collect(),
        instance_group: vec![ModelInstanceGroup {
            name: source.name.clone(),
            count: number(settings.instances),
            // The engine decides which device it uses.
            kind: Kind::Auto.into(),
        }],
        default_model_filename: MODEL_FILE.to_owned(),
        dynamic_batching: (settings.max_batch_size > 0).then(|| ModelDynamicBatching {
            preferred_batch_size: settings.preferred_batch_sizes.iter().copied().map(number).collect(),
            max_queue_delay_microseconds: settings.queue_delay_us.into(),
        }),
    }
}

/// Returns what a model has served.
pub fn model_statistics(model: &Model) -> ModelStatistics {
    let totals = model.statistics().totals();
    let fail =
        Total { count: totals.fail.count + totals.cancelled.count, nanos: totals.fail.nanos + totals.cancelled.nanos };
    let batch = |(rows, batch): (&u64, &BatchTotals)| InferBatchStatistics {
        batch_size: *rows,
        compute_input: duration(batch.input),
        compute_infer: duration(batch.infer),
        compute_output: duration(batch.output),
    };
    ModelStatistics {
        name: model.source().name.clone(),
        version: model.source().version.to_string(),
        last_inference: totals.last_ms,
        inference_count: totals.rows,
        execution_count: totals.runs,
        inference_stats: Some(InferStatistics {
            success: duration(totals.success),
            fail: duration(fail),
            queue: duration(totals.queue),
            compute_input: duration(totals.input),
            compute_infer: duration(totals.infer),
            compute_output: duration(totals.output),
            cache_hit: duration(Total::default()),
            cache_miss: duration(Total::default()),
        }),
        batch_stats: totals.batches.iter().map(batch).collect(),
    }
}

fn duration(total: Total) -> Option<StatisticDuration> {
    Some(StatisticDuration { count: total.count, ns: total.nanos })
}
