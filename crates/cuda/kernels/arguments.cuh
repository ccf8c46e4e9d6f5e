// What kernels are given: twins of the structures of the same names in `src/arguments.rs`, where they are described.
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;

struct List {
    u64 rows;
    u64 count;
};

struct Store {
    u64 pages;
    u64 increments;
    u64 residuals;
    u32 layers;
    u32 kv_heads;
    u32 head_dim;
    u32 hidden;
};

struct EmbedArgs {
    u64 table;
    u64 ids;
    u64 count;
    u64 stream;
    u32 hidden;
    u32 unused;
};

struct NormaliseArgs {
    List list;
    u64 stream;
    u64 weight;
    u64 out;
    u32 hidden;
    u32 stride;
    float epsilon;
    u32 unused;
};

struct GemmPart {
    u64 weight;
    u64 scales;
    u64 bias;
    u64 out;
    u32 columns;
    u32 stride;
};

struct GemmArgs {
    u64 input;
    List list;
    GemmPart part[3];
    u32 parts;
    u32 depth;
    u32 first;
    u32 rows;
};

struct HeadsArgs {
    List list;
    u64 projected;
    u64 norm;
    u64 cos;
    u64 sin;
    u64 positions;
    u64 slots;
    u64 out;
    Store store;
    u32 heads;
    u32 head_dim;
    u32 half;
    float epsilon;
    u32 layer;
    u32 target;
};

struct SegmentRows {
    u32 first;
    u32 end;
    u32 table;
    u32 entries;
};

struct AttendArgs {
    List list;
    u64 segment_of;
    u64 segments;
    u64 tables;
    u64 limits;
    u64 queries;
    u64 out;
    u64 partial;
    Store store;
    u32 heads;
    u32 layer;
    u32 stride;
    u32 spans;
    float scale;
    u32 unused;
};

struct MarkArgs {
    List list;
    u64 live;
    u64 flags;
};

struct IncrementArgs {
    List list;
    u64 flags;
    u64 slots;
    u64 stream;
    Store store;
    u32 layer;
    u32 unused;
};

struct Probe {
    u32 first;
    u32 rows;
    u32 keep;
    u32 random;
    u64 key;
};

struct RollArgs {
    u64 probes;
    u64 count;
    u64 probed;
    u64 positions;
    u64 scores;
    u32 layer;
    u32 unused;
};

struct CompareArgs {
    List list;
    u64 places;
    u64 fresh;
    u64 slots;
    u64 scores;
    Store store;
    u32 layer;
    u32 value;
};

struct ChooseArgs {
    List fixed;
    u64 probes;
    u64 count;
    u64 probed;
    u64 scores;
    u64 live;
    u64 flags;
    List computed;
};

struct KeepArgs {
    u64 copies;
    u64 count;
    Store store;
    u32 element;
    u32 unused;
};

struct CopyArgs {
    u64 copies;
    u64 count;
    Store store;
    u32 element;
    u32 unused;
};

struct HeadRowData {
    u32 row;
    u32 request;
    u64 key;
    u32 other;
    u32 slot;
    float scale;
    u32 blended;
    u32 top;
    u32 judged;
};

struct RequestData {
    u32 forbid;
    u32 forbidden;
    u32 mute;
    u32 muted;
    float temperature;
    u32 top_k;
    float top_p;
    float reach;
    u32 top_k_first;
    u32 drawn;
    u32 margin;
    u32 entropy;
    u32 top;
    u32 judge_width;
    u32 limit;
};

struct HeadInputArgs {
    u64 rows;
    u64 count;
    u64 stream;
    u64 weight;
    u64 out;
    Store store;
    u32 first;
    u32 stride;
    float epsilon;
    u32 unused;
};

struct HeadAnswerArgs {
    u64 rows;
    u64 count;
    u64 requests;
    u64 lists;
    u64 logits;
    u64 scratch;
    u64 tokens;
    u64 confidence;
    u64 margin;
    u64 entropy;
    u64 top;
    u64 judged;
    u32 first;
    u32 vocabulary;
};

struct CeilingArgs {
    u64 memory;
    u64 quads;
    u64 out;
    u32 rounds;
    u32 unused;
};

enum HeadsTarget { IN_PLACE = 0, QUERIES = 1, KEYS = 2, VALUES = 3 };

// Positions of a page of K/V, and of a span of attention.
#define PAGE 32
#define SPAN 256
