/* A stub of NVML and CUDA for a machine with two GPUs, which the two libraries number in opposite orders. */

#include <stdio.h>
#include <string.h>

typedef void *Device;
typedef struct {
  unsigned version;
  unsigned long long total, reserved, free, used;
} Memory;

static const char *const UUIDS[2] = {"GPU-00000000-0000-0000-0000-000000000000",
                                     "GPU-01010101-0101-0101-0101-010101010101"};
static int devices[2];

static int number(Device device) { return device == &devices[1]; }

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) { return snprintf(text, length, "1.0") < 0; }
int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
  *device = &devices[index];
  return index > 1;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
  for (int i = 0; i < 2; i++)
    if (strcmp(uuid, UUIDS[i]) == 0) {
      *device = &devices[i];
      return 0;
    }
  return 6;
}
int nvmlDeviceGetUUID(Device device, char *text, unsigned length) {
  return snprintf(text, length, "%s", UUIDS[number(device)]) < 0;
}
int nvmlDeviceGetName(Device device, char *text, unsigned length) {
  return snprintf(text, length, "GPU %d", number(device)) < 0;
}
/* The first device has 7 GiB in use, by another process. The second has 1 GiB in use, and 3 GiB at the second call. */
int nvmlDeviceGetMemoryInfo_v2(Device device, Memory *memory) {
  static int calls;
  unsigned long long gib = number(device) == 0 ? 7 : ++calls == 2 ? 3 : 1;
  memory->total = 80ull << 30;
  memory->used = gib << 30;
  return 0;
}

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal < 0 || ordinal > 1;
}
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  memset(uuid, 1 - device, 16);
  return 0;
}
