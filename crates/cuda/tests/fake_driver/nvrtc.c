// A compiler that compiles nothing, for tests: what it makes is the text that it was given, with its options, as the
// driver beside it takes it. What it pretends is chosen when it is compiled: MAJOR, MINOR, and the capabilities KNOWN.
// It refuses a text that holds #error. With EMULATED (the path of the emulator's header) and FOLDER it makes libraries of
// the emulator's there, and what comes out is the path of one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef MAJOR
#define MAJOR 12
#endif
#ifndef MINOR
#define MINOR 4
#endif
#ifndef KNOWN
#define KNOWN 80, 86, 89, 90
#endif

enum { OK = 0, INVALID_INPUT = 3, COMPILATION = 6 };

struct program { char *text; char *image; char log[256]; int emulated; };

static const int known[] = {KNOWN};
// Programs that were not given back, and programs that were compiled: what tests look at.
int fake_programs = 0;
int fake_compiled = 0;

const char *nvrtcGetErrorString(int code) { return code == COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR"; }
int nvrtcVersion(int *major, int *minor) { *major = MAJOR; *minor = MINOR; return OK; }
int nvrtcGetNumSupportedArchs(int *count) { *count = sizeof known / sizeof *known; return OK; }
int nvrtcGetSupportedArchs(int *capabilities) { memcpy(capabilities, known, sizeof known); return OK; }

int nvrtcCreateProgram(struct program **program, const char *text, const char *name, int headers,
                       const char *const *texts, const char *const *names) {
    if (!name || headers || texts || names) return INVALID_INPUT;
    *program = calloc(1, sizeof **program);
    (*program)->text = strdup(text);
    fake_programs++;
    return OK;
}

#ifdef EMULATED
// The text with the emulator's primitives where there are none of the device's, through the machine's own compiler.
static int emulate(struct program *program, int count, const char *const *options) {
    static _Atomic int next = 0;
    const char *mark = "#line 1 \"primitives\"\n", *place = strstr(program->text, mark);
    char source[256], library[256], command[2048];
    int number = next++;
    snprintf(source, sizeof source, "%s/%d.cpp", FOLDER, number);
    snprintf(library, sizeof library, "%s/%d.so", FOLDER, number);
    // Linked by itself, without the option that would ask for the sanitizer's library.
    snprintf(command, sizeof command, "c++ -std=c++17 -O2 -c -fPIC -fvisibility=hidden -ffp-contract=off "
             "-fno-strict-aliasing -fsanitize=alignment %s -o %s.o %s && c++ -shared -o %s %s.o", FUSED, library, source,
             library, library);
    FILE *file = place ? fopen(source, "w") : NULL;
    if (!file) return INVALID_INPUT;
    place += strlen(mark);
    fprintf(file, "%.*s#include \"%s\"\n%s", (int)(place - program->text), program->text, EMULATED, place);
    fclose(file);
    if (system(command)) return COMPILATION;
    program->image = calloc(1, sizeof library + 64);
    strcat(strcat(program->image, "pretence:"), library);
    program->emulated = count > 0 && options;
    fake_compiled++;
    return OK;
}
#endif

int nvrtcCompileProgram(struct program *program, int count, const char *const *options) {
    char *error = strstr(program->text, "#error");
    if (error) {
        snprintf(program->log, sizeof program->log, "a.cu(1): warning: odd\n\na.cu(2): error: %.*s\n1 error detected\n",
                 (int)strcspn(error, "\n"), error);
        return COMPILATION;
    }
#ifdef EMULATED
    return emulate(program, count, options);
#endif
    size_t room = strlen(program->text) + 64;
    for (int at = 0; at < count; at++) room += strlen(options[at]) + 1;
    program->image = calloc(1, room);
    strcat(program->image, "pretence:");
    for (int at = 0; at < count; at++) strcat(strcat(program->image, options[at]), " ");
    strcat(program->image, program->text);
    fake_compiled++;
    return OK;
}

int nvrtcGetProgramLogSize(struct program *program, size_t *bytes) { *bytes = strlen(program->log) + 1; return OK; }
int nvrtcGetProgramLog(struct program *program, char *log) { strcpy(log, program->log); return OK; }

static int made(struct program *program, const char *option) {
    return program->image && (program->emulated || strstr(program->image, option));
}
int nvrtcGetCUBINSize(struct program *program, size_t *bytes) {
    *bytes = made(program, "=sm_") ? strlen(program->image) + 1 : 0;
    return OK;
}
int nvrtcGetCUBIN(struct program *program, char *image) {
    if (!made(program, "=sm_")) return INVALID_INPUT;
    strcpy(image, program->image);
    return OK;
}
int nvrtcGetPTXSize(struct program *program, size_t *bytes) { *bytes = strlen(program->image) + 1; return OK; }
int nvrtcGetPTX(struct program *program, char *image) { strcpy(image, program->image); return OK; }

int nvrtcDestroyProgram(struct program **program) {
    free((*program)->text);
    free((*program)->image);
    free(*program);
    *program = NULL;
    fake_programs--;
    return OK;
}
