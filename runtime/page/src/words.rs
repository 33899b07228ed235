//! The words of a page in English and Chinese. What a record says, such as the reasons of a verdict, is in English on every page.

/// The language of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    #[default]
    English,
    Chinese,
}

impl Language {
    /// Returns the code of the language for HTML.
    pub(super) const fn code(self) -> &'static str {
        match self {
            Language::English => "en",
            Language::Chinese => "zh",
        }
    }

    /// Returns a text of the page in this language, which is in the table.
    pub(super) fn word(self, english: &str) -> &str {
        debug_assert!(chinese(english).is_some(), "`{english}` has no Chinese");
        self.name(english)
    }

    /// Returns a name of a row in this language. One that is not in the table stays as it is.
    pub(super) fn name(self, english: &str) -> &str {
        match self {
            Language::English => english,
            Language::Chinese => chinese(english).unwrap_or(english),
        }
    }

    /// Returns a text in which each `{}` is replaced by the next value.
    pub(super) fn sentence(self, english: &str, values: &[&str]) -> String {
        let mut parts = self.word(english).split("{}");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for (part, value) in parts.zip(values) {
            text.extend([*value, part]);
        }
        text
    }
}

fn chinese(english: &str) -> Option<&'static str> {
    WORDS.iter().find(|(known, _)| *known == english).map(|(_, chinese)| *chinese)
}

/// Every text of the page, in English and Chinese.
const WORDS: &[(&str, &str)] = &[
    ("Results", "评测结果"),
    ("All results", "所有结果"),
    ("Cases", "case"),
    ("Vendors", "厂商"),
    ("Show", "显示"),
    ("results", "结果数"),
    ("ranked", "参加排名"),
    ("fastest", "最快"),
    ("rank", "名次"),
    ("vendor", "厂商"),
    ("compiler", "编译器"),
    ("date", "日期"),
    ("only ranked", "仅参加排名的"),
    ("only valid", "仅有效的"),
    ("only authentic", "仅已签名验证的"),
    (
        "Ranked by core among results on the same number of devices: for each vendor, device, compiler, precision and batch size, the newest result that is valid and not wrong. The throughput of several devices is the sum over them. An unofficial result is not valid.",
        "在设备数相同的结果之间按 core 排名：每个厂商、设备、编译器、数值精度和批大小取最新的有效且未被发现错误的结果。多个设备的吞吐量是各设备之和。非正式的结果不算有效。",
    ),
    ("rank by queries/s", "按查询数/s 的名次"),
    (
        "Ranked by queries/s: the same results if they have a scenario and kept its latency bound, among those of the same scenario.",
        "按查询数/s 排名：上述结果中有场景并且满足其延迟上界的结果，在相同场景之间比较。",
    ),
    ("a newer result is ranked", "已有更新的结果参加排名"),
    ("it is part of a result on several devices", "是多设备结果的一部分"),
    ("it is wrong", "有误"),
    ("it is unofficial", "非正式"),
    ("it is invalid", "无效"),
    ("it has no throughput", "没有吞吐量"),
    ("it has no latency bound", "没有延迟上界"),
    ("it misses the bound", "未满足延迟上界"),
    ("History of results that are not invalid", "非无效结果的历史"),
    ("sum of {}", "{} 个之和"),
    ("devices", "设备数"),
    ("{} workers on shared devices", "{} 个工作进程，共用设备"),
    ("{} to {}", "{} 至 {}"),
    ("queries/s", "查询数/s"),
    ("latency of queries", "查询延迟"),
    ("All cases", "所有 case"),
    ("case", "case"),
    ("place", "位置"),
    ("result", "结果"),
    ("state", "状态"),
    ("verdict", "判定"),
    ("checked", "检查"),
    ("throughput", "吞吐量"),
    ("core", "core"),
    ("whole", "whole"),
    ("median step", "step 中位数"),
    ("accuracy", "精度"),
    ("device", "设备"),
    ("batch size", "批大小"),
    ("departures", "差异"),
    ("precision", "数值精度"),
    ("ok", "成功"),
    ("FAILED", "失败"),
    ("interrupted", "已中断"),
    ("valid", "有效（valid）"),
    ("unofficial", "非正式（unofficial）"),
    ("invalid", "无效（invalid）"),
    ("authentic", "真实（authentic）"),
    ("consistent", "一致（consistent）"),
    ("WRONG", "有误（WRONG）"),
    ("not verifiable", "无法验证"),
    ("not checked", "未检查"),
    (
        "Do not use these figures: the files of this result contradict each other.",
        "请勿使用这些数值：此结果的文件互相矛盾。",
    ),
    ("The figures of an invalid result must not be used.", "无效结果的数值不得使用。"),
    (
        "Not checked here, because its files are large. This command checks them:",
        "文件较大，此处未检查。可用以下命令检查：",
    ),
    ("Not completely checked:", "未完全检查："),
    ("What is wrong", "错误之处"),
    ("Further findings: {}", "其他错误：{} 处"),
    ("expected {}, found {}", "应为 {}，实为 {}"),
    ("expected {}", "应为 {}"),
    ("found {}", "实为 {}"),
    ("Reasons", "理由"),
    ("Notes", "说明"),
    ("Failures", "失败原因"),
    ("hint", "提示"),
    ("Warnings", "警告"),
    ("Figures", "主要数值"),
    ("Departures from the standard case", "与标准 case 的差异"),
    ("Every section of the record", "评测记录的所有部分"),
    ("FlagPerf's rows", "FlagPerf 的各行"),
    ("Settings", "设置"),
    ("setting", "设置"),
    ("value", "值"),
    ("origin", "来源"),
    ("Provenance", "来源与哈希"),
    ("what", "内容"),
    ("Table", "表格"),
    (
        "Charts are left out because the page has many results. Name fewer results to see them.",
        "结果较多，因此省略图表。请指定较少的结果以查看图表。",
    ),
    ("No charts of this file: {}", "此文件没有图表：{}"),
    ("validation", "验证"),
    ("inference", "推理"),
    ("training", "训练"),
    ("graph", "图"),
    ("energy", "能耗"),
    ("agreement", "一致性"),
    ("audit", "审计"),
    ("95 % interval", "95 % 区间"),
    ("step times", "step 时间的变化"),
    ("latency of a step", "step 的延迟"),
    ("latency at most", "延迟至多"),
    ("Step times", "step 时间"),
    ("Step times: how often", "step 时间：频数"),
    ("scenario", "场景"),
    ("Latency of queries: how often", "查询延迟：频数"),
    (
        "The number of queries with a latency within each bar, from their scheduled arrival to their answer.",
        "延迟（从计划到达到得到回答）落在每个柱内的查询数。",
    ),
    ("Latency of queries: share of queries that took at most this long", "查询延迟：不超过该时间的查询占比"),
    ("The share of the queries whose latency is at most the time on the axis.", "延迟不超过横轴时间的查询占比。"),
    ("Time to the first token: how often", "首个 token 的时间：频数"),
    (
        "The number of queries with a time within each bar, from their scheduled arrival to the first token.",
        "每个区间内的查询数；时间从计划到达算起，到首个 token 为止。",
    ),
    (
        "Time to the first token: share of queries that took at most this long",
        "首个 token 的时间：不超过该时间的查询占比",
    ),
    (
        "The share of the queries whose time to the first token is at most the time on the axis.",
        "首个 token 的时间不超过横轴时间的查询占比。",
    ),
    ("Time between tokens: how often", "token 间隔：频数"),
    (
        "The number of queries with a mean time between the tokens of their answer within each bar.",
        "每个区间内的查询数；时间为一个回答中 token 之间的平均间隔。",
    ),
    ("Time between tokens: share of queries that took at most this long", "token 间隔：不超过该时间的查询占比"),
    (
        "The share of the queries whose mean time between tokens is at most the time on the axis.",
        "token 平均间隔不超过横轴时间的查询占比。",
    ),
    ("queries", "查询数"),
    ("Queries that took longer: {}. The longest took {}.", "用时更长的查询：{} 个，最长 {}。"),
    ("Step times: share of steps that took at most this long", "step 时间：不超过该时间的 step 占比"),
    ("Power", "功率"),
    ("Clock of the device", "设备频率"),
    ("Temperature", "温度"),
    ("Memory in use", "使用中的内存"),
    ("Busy share", "忙碌占比"),
    ("Loss", "损失"),
    ("Metrics of the evaluations", "各次评估的指标"),
    (
        "The time of each step in core, over the time since the case began. The line is the mean, the area is from the shortest to the longest.",
        "每个 step 的 core 时间，横轴为 case 开始以来的时间。线为平均值，色带为最短到最长。",
    ),
    (
        "Over the time since the case began. The line is the mean, the area is from the lowest to the highest reading.",
        "横轴为 case 开始以来的时间。线为平均值，色带为最低到最高的读数。",
    ),
    ("The number of steps with a time in core within each bar.", "core 时间落在每个柱内的 step 数。"),
    (
        "The share of the steps whose time in core is at most the time on the axis.",
        "core 时间不超过横轴时间的 step 占比。",
    ),
    ("Steps that took longer: {}. The longest took {}.", "用时更长的 step：{} 个，最长 {}。"),
    (
        "The loss of each step, over the steps. The line is the mean, the area is from the lowest to the highest.",
        "每个 step 的损失，横轴为 step 数。线为平均值，色带为最低到最高。",
    ),
    ("Each evaluation, over the steps before it.", "各次评估，横轴为此前的 step 数。"),
    ("Of the last repetition.", "最后一次重复。"),
    ("time", "时间"),
    ("from", "从"),
    ("to", "到"),
    ("steps", "step 数"),
    ("share", "占比"),
    ("lowest", "最低"),
    ("mean", "平均"),
    ("highest", "最高"),
    ("step", "step"),
    ("what was read", "读取对象"),
    ("readings", "读数"),
    ("epoch", "epoch"),
    ("started", "开始时间"),
    ("flagperf", "flagperf"),
    ("Rust compiler", "Rust 编译器"),
    ("program", "程序"),
    ("git revision", "git 版本"),
    ("checkout", "检出目录"),
    ("as in the revision", "与该版本相同"),
    ("differs from the revision", "与该版本不同"),
    ("digest", "摘要"),
    ("host", "主机"),
    ("system", "系统"),
    ("image", "镜像"),
    ("seed", "种子"),
    ("script", "脚本"),
    ("configuration", "配置"),
    ("model", "模型"),
    ("weights", "权重"),
    ("dataset", "数据集"),
    ("events", "事件"),
    ("library", "库"),
    ("{} more", "另有 {} 项"),
    (
        "prompts: how many are answered at the same time; a user: tokens/s of one answer after its first token, on average; a device: output tokens/s of all answers. A star marks the Pareto front: no other row is at least as good in both, and better in one.",
        "prompts（提示数）：同时回答的提示数；每用户：一个答案在首个 token 之后的平均每秒 token 数；每设备：所有答案合计的每秒输出 token 数。星号标出帕累托前沿：没有别的行在两者上都不差并且至少一项更好。",
    ),
    (
        "The cost is that of output tokens on a device that is paid by the hour and answers prompts all the time, as here: idle time, and what the price does not include, such as the power of the host, is not counted.",
        "成本是输出 token 的成本，设备按小时付费，并且如本次评测一样一直在回答提示：空闲时间，以及价格不包含的部分（例如主机的功耗）不计入。",
    ),
    (
        "Which devices are behind the server is not known: its tokens are divided by {} (--server-devices), and its energy is unknown.",
        "服务器背后有哪些设备是未知的：其 token 数除以 {}（--server-devices），其能耗未知。",
    ),
    (
        "The server sent whole answers, so that a user's tokens/s contain the time to the first token.",
        "服务器一次发送整个答案，因此每用户的每秒 token 数包含到首个 token 的时间。",
    ),
    (
        "Not checked, because its files are large (`flagperf verify` checks it): {}",
        "未检查，因为其文件很大（`flagperf verify` 可以检查）：{}",
    ),
    (
        "The devices of some results are not known and count as one, so that the figures of a device may be better than the truth.",
        "某些结果的设备是未知的，按一个计算，因此每设备的数字可能比实际更好。",
    ),
    ("prompts", "提示数"),
    ("a user", "每用户"),
    ("a device", "每设备"),
    ("first token", "首个 token"),
    ("tokens/J", "token/J"),
    ("{} per 1M", "{}/百万 token"),
    ("unknown", "未知"),
    ("Price: {}", "价格：{}"),
    ("tokens/J: output tokens per joule, {}", "token/J：每焦耳的输出 token 数，{}"),
    ("device only", "仅设备"),
    ("processors and their memory", "处理器及其内存"),
    ("Output tokens/s of a device over tokens/s of a user", "每设备每秒输出 token 数，随每用户每秒 token 数"),
    (
        "Each dot is a row of the table; the line joins those of the Pareto front, and a cross is from the smallest to the largest of several results.",
        "每个点是表中的一行；线连接帕累托前沿上的各点，十字表示多个结果的最小值到最大值。",
    ),
    (
        "Results with the same settings and versions are one row: the mean, and in brackets the smallest and the largest value.",
        "设置和版本都相同的结果合为一行：平均值，括号内为最小值和最大值。",
    ),
    ("FLOP/s over FLOP/byte", "FLOP/s，随 FLOP/byte"),
    (
        "Each line is the most that the measured peaks of a device allow, each dot a result.",
        "每条线是设备的实测峰值所允许的上限，每个点是一个结果。",
    ),
    (
        "FLOP/byte are at most as many as shown: each weight is read once for a batch, and inputs and outputs are moved once; values between operators are not counted. The peaks are those of `flagperf peak`.",
        "FLOP/byte 至多为所示的值：每批中每个权重读一次，输入和输出各传一次；算子之间的值不计。峰值由 `flagperf peak` 测得。",
    ),
    ("Not shown: {}", "未显示：{}"),
    ("{}: samples/s by {}", "{}：每秒样本数，随 {}"),
    (
        "The geometric mean of the results with each value; values that are not numbers have their number in the table. The knee is the smallest value with at least 95 % of the highest throughput (core).",
        "每个值的结果的几何平均；不是数的值以其在表中的序号表示。拐点是吞吐量（core）不低于最高值 95 % 的最小值。",
    ),
    ("{}: change of samples/s by each switch, in percent", "{}：各开关使每秒样本数改变的百分比"),
    (
        "The change of the throughput (core) with its 95 % confidence interval, as of results that were measured at different times; the number of a switch is that of its row in the table. Alone: by all off; added: by those before it; left out: all others on, by all on.",
        "吞吐量（core）的变化及其 95 % 置信区间（按不同时间测得的结果计算）；开关的序号即其在表中的行号。单独：相对于全部关闭；累加：相对于此前各开关；去掉：其余全部打开，相对于全部打开。",
    ),
    ("number", "序号"),
    ("change by the best, in percent", "相对最佳值的变化（%）"),
    ("best", "最佳"),
    ("knee", "拐点"),
    ("switch", "开关"),
    ("settings", "设置"),
    ("alone", "单独"),
    ("added", "累加"),
    ("in total", "合计"),
    ("left out", "去掉"),
    ("(whole)", "（whole）"),
    ("FLOP/byte", "FLOP/byte"),
    ("FLOP/s", "FLOP/s"),
    ("at most", "上限"),
    ("What a record says is printed as it is, in English.", "评测记录中的文字按原文显示（英文）。"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_of_the_templates_has_both_languages() {
        let template = concat!(include_str!("../templates/page.html"), include_str!("../templates/site.html"));
        let texts: Vec<&str> = template.split("word(\"").skip(1).map(|rest| rest.split_once('"').unwrap().0).collect();
        assert!(texts.len() > 20, "{texts:?}");
        for text in texts {
            assert!(chinese(text).is_some(), "`{text}`");
        }
    }

    #[test]
    fn each_text_is_once_in_the_table_and_keeps_its_places() {
        for (index, (english, chinese)) in WORDS.iter().enumerate() {
            assert!(!WORDS[..index].iter().any(|(known, _)| known == english), "{english}");
            assert_eq!(english.matches("{}").count(), chinese.matches("{}").count(), "{english}");
        }
        assert_eq!(Language::Chinese.sentence("expected {}, found {}", &["1", "{}"]), "应为 1，实为 {}");
    }
}
