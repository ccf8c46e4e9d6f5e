//! Arguments of `bench serve`, as they are typed.

use clap::Args;

use super::Path;

/// `demask bench serve`.
#[derive(Debug, Args)]
pub struct BenchServeArgs {
    /// The server: http://HOST:PORT
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Endpoint to ask: chat, completions [default: chat]
    #[arg(long, value_name = "NAME")]
    pub endpoint: Option<String>,
    /// Requests at the same time, or several numbers of them, measured one after the other [default: 1]
    #[arg(long, value_name = "N[,N]")]
    pub concurrency: Option<String>,
    /// Requests a second at random moments, whatever the server does, instead of --concurrency
    #[arg(long, value_name = "RATE")]
    pub rate: Option<f64>,
    /// Requests of a measurement [default: 100]
    #[arg(long, value_name = "N")]
    pub requests: Option<usize>,
    /// Requests before the first measurement, one at a time [default: 0]
    #[arg(long, value_name = "N")]
    pub warm: Option<usize>,
    /// Prompts, used in turn: a line each, or lines of JSON with prompt, question or messages; -: standard input
    /// [default: random words]
    #[arg(long, value_name = "FILE")]
    pub prompts: Option<Path>,
    /// Words of a random prompt [default: 32]
    #[arg(long, value_name = "N")]
    pub prompt_words: Option<usize>,
    /// Tokens of an answer at most [default: 64]
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<u64>,
    /// Fields of every request beside its own: '{"temperature": 0, "diffusion": {"receipt": true}}'
    #[arg(long, value_name = "JSON")]
    pub body: Option<String>,
    /// Environment variable with the server's key
    #[arg(long, value_name = "NAME")]
    pub api_key_env: Option<String>,
    /// Bounds that goodput counts by: ttft=500ms,gap=100ms,total=2s
    #[arg(long, value_name = "BOUNDS")]
    pub slo: Option<String>,
    /// The server's process on this machine, whose processor seconds are reported
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Send every answered request again, alone, and fail if an answer differs
    #[arg(long)]
    pub check: bool,
    /// Add lists of all requests to the JSON
    #[arg(long)]
    pub details: bool,
    /// Seconds that a request may take [default: 600]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<f64>,
}
