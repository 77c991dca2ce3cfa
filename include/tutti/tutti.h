/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include <tutti/accelerator.h>
#include <tutti/coll.h>
#include <tutti/comm.h>
#include <tutti/ft.h>
#include <tutti/status.h>
#include <tutti/store.h>
#include <tutti/types.h>
#include <tutti/window.h>

#endif
